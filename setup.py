"""Build the optional C extension; all other metadata is in pyproject.toml."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup

SOURCES = [
    f"native/{name}.c" for name in ("module", "cpu", "lstm", "panels", "recurrence", "charcnn")
]
HEADERS = sorted(str(path) for path in Path("native").glob("*.h"))


def extensions() -> list[Extension]:
    """List the extension, unless ELMORE_NATIVE=0 asks for none."""
    choice = os.environ.get("ELMORE_NATIVE", "auto")
    if choice not in ("0", "auto", "require"):
        sys.exit(f"ELMORE_NATIVE={choice} at build; use 0, auto or require")
    if choice == "0":
        return []
    macros: list[tuple[str, str | None]] = []
    # Free-threaded builds have no stable ABI.
    limited = not sysconfig.get_config_var("Py_GIL_DISABLED")
    if limited:
        macros.append(("Py_LIMITED_API", "0x030B0000"))
    flags = (
        []
        if sys.platform == "win32"
        else [
            "-O3",
            "-std=c11",
            "-ffp-contract=off",
            "-fvisibility=hidden",
            # Neither reorders a sum; without them compilers keep the clamps as branches.
            "-fno-trapping-math",
            "-fno-math-errno",
        ]
    )
    return [
        Extension(
            "elmore._native",
            SOURCES,
            depends=HEADERS,
            define_macros=macros,
            extra_compile_args=flags,
            py_limited_api=limited,
            # A missing compiler must not fail an install, unless somebody insists.
            optional=choice != "require",
        )
    ]


setup(
    ext_modules=extensions(),
    options={"bdist_wheel": {"py_limited_api": "cp311"}}
    if not sysconfig.get_config_var("Py_GIL_DISABLED")
    else {},
)
