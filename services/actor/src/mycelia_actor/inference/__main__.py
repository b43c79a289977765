"""`python -m mycelia_actor.inference`."""

import os
import sys

# Before numpy is loaded: its BLAS would wake a thread per core for products that
# are too small to share, at the cost of the other services of the machine.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from mycelia_actor.inference.main import main

sys.exit(main())
