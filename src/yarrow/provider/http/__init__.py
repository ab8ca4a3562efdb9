"""Small HTTP/1.1 client for streaming from model backends."""
