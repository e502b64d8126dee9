"""Small parts that every room uses."""
