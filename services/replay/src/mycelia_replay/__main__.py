"""Lets `python -m mycelia_replay` start the service."""

import sys

from mycelia_replay.main import main

if __name__ == "__main__":
    sys.exit(main())
