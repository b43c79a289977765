"""The replay service: keeps rows of experience and hands out windows of them."""
