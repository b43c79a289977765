"""gRPC at its edges: channels, the server, and errors that carry a status."""
