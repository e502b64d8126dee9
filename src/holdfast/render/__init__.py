"""What people look at: sentences, pages, pictures and charts."""
