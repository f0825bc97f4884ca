"""`python -m elmore.compat run SCRIPT [ARGS]`: run a script written for an old ELMo library."""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path

from elmore.compat import LIBRARIES, install


def main() -> int:
    """Run a script as `python SCRIPT ARGS` would; 1 if it imports what elmore does not have."""
    parser = argparse.ArgumentParser(
        prog="python -m elmore.compat",
        description=f"Run a script in which {', '.join(LIBRARIES)} are elmore.",
    )
    parser.add_argument("verb", metavar="run", choices=["run"])
    parser.add_argument("script", metavar="SCRIPT", help="Python file")
    parser.add_argument("args", metavar="ARGS", nargs=argparse.REMAINDER, help="its arguments")
    args = parser.parse_args()
    script = Path(args.script)
    if not script.is_file():
        parser.error(f"'{script}' does not exist")
    install()
    # What Python itself sets for a script: its arguments, and its folder for imports.
    sys.argv = [args.script, *args.args]
    sys.path[0] = str(script.resolve().parent)
    try:
        runpy.run_path(args.script, run_name="__main__")
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in {*LIBRARIES, "elmore"}:
            raise
        sys.stderr.write(
            f"{parser.prog}: error: {error}; elmore has the parts of the old libraries that make "
            "ELMo, see docs/coming-from.md\n"
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
