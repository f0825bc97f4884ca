"""`python -m elmore`."""

from __future__ import annotations

import sys

from elmore.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
