"""Try the elmore that this Python has: import, load, embed, and the command line.

Works on every system and needs no test runner: cibuildwheel runs it against each wheel.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import elmore
from elmore.compute.native import native

SENTENCES = ["She sat on the bank of the river.", "The bank raised its interest rates."]


def main() -> None:
    """Fail with the first thing that does not work."""
    extension = native().module is not None
    if os.environ.get("ELMORE_NATIVE") == "require":
        assert extension, "the C extension is missing"
    elmo = elmore.Elmo.load()
    river, money = elmo.layers(SENTENCES)
    assert river.values.shape == (3, 9, elmo.dim), river.values.shape
    alike = elmore.cosine(river.values[2, 4], money.values[2, 1])
    assert 0.3 < alike < 0.7, f"'bank' and 'bank' have a cosine of {alike}"

    program = shutil.which("elmore")
    assert program, "the command `elmore` is not on PATH"
    done = subprocess.run(
        [program, "embed", "--pool", "mean"],
        input=SENTENCES[0] + "\n",
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    )
    row = json.loads(done.stdout)
    vector = row.get("vector") or row["vectors"]
    assert len(vector) == elmo.dim, len(vector)
    print(f"elmore {elmore.__version__} works, {'with' if extension else 'without'} the extension")


if __name__ == "__main__":
    main()
