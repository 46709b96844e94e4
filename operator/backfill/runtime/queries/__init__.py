"""What the program's queries have done, and what they leave open."""
