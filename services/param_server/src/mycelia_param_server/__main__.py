"""Runs the parameter server: `python -m mycelia_param_server`."""

import sys

from mycelia_param_server.main import main

sys.exit(main())
