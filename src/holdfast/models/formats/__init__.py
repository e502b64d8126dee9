"""Model files: what a file is, whether loading it can run code, and what is in it, checked before
anything is made."""
