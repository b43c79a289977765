"""What other systems do on the same work, each in a virtual environment of its own."""
