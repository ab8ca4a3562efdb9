"""A session as one page for a browser, that needs nothing but itself."""
