"""An environment of one's own; see README.md."""
