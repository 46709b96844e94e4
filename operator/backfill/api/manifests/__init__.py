"""Reading manifest files, and reporting every problem in them."""
