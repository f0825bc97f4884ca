"""Build the optional C extension; all other metadata is in pyproject.toml."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCES = [
    f"native/{name}.c"
    for name in ("module", "cpu", "lstm", "panels", "rank", "recurrence", "charcnn")
]
HEADERS = sorted(str(path) for path in Path("native").glob("*.h"))
PAGES = "https://github.com/elmore-nlp/elmore/blob/main/"
PICTURES = "https://raw.githubusercontent.com/elmore-nlp/elmore/main/"
MSVC_FLAGS = ["/std:c11"]
FLAGS = [
    "-O3",
    "-std=c11",
    "-ffp-contract=off",
    "-fvisibility=hidden",
    # Neither reorders a sum; without them compilers keep the clamps as branches.
    "-fno-trapping-math",
    "-fno-math-errno",
]


class BuildExtension(build_ext):
    """Choose the flags of the compiler: Windows has both MSVC and GCC."""

    def build_extensions(self) -> None:
        flags = MSVC_FLAGS if self.compiler.compiler_type == "msvc" else FLAGS
        for extension in self.extensions:
            extension.extra_compile_args = flags
        super().build_extensions()


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
    return [
        Extension(
            "elmore._native",
            SOURCES,
            depends=HEADERS,
            define_macros=macros,
            py_limited_api=limited,
            # A missing compiler must not fail an install, unless somebody insists.
            optional=choice != "require",
        )
    ]


def readme() -> str:
    """README.md with links that work outside the repository too, such as on PyPI."""
    text = Path("README.md").read_text(encoding="utf-8")
    text = re.sub(r"\]\((docs/pictures/[^)]+)\)", rf"]({PICTURES}\1?sanitize=true)", text)
    return re.sub(r"\]\(((?:docs/|[A-Z]+\.md)[^)]*)\)", rf"]({PAGES}\1)", text)


setup(
    long_description=readme(),
    long_description_content_type="text/markdown",
    ext_modules=extensions(),
    cmdclass={"build_ext": BuildExtension},
    options={"bdist_wheel": {"py_limited_api": "cp311"}}
    if not sysconfig.get_config_var("Py_GIL_DISABLED")
    else {},
)
