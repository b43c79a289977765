"""Runs the learner: `python -m mycelia_learner --join ADDRESS`."""

import sys

from mycelia_learner.main import main

sys.exit(main())
