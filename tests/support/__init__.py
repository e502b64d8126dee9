"""What several tests use: small tables, models and images, the table behind the laws, and the
command line."""
