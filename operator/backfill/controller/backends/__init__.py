"""Where the application runs."""
