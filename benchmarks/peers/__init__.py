"""The systems that are measured beside each other, one file each; roster.py lists them."""
