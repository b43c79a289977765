"""`python -m mycelia_cli` is `mycelia`."""

import sys

from mycelia_cli.main import main

sys.exit(main())
