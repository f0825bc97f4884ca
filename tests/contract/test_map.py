"""docs/architecture.md has one line per file, and names no file that does not exist.

ELMORE_DOCS=write pytest tests/contract/test_map.py    # write the map again
"""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "elmore"
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- map -->\n", "<!-- end of map -->"
# Pages that lead readers to files.
LEADING = ("architecture.md", "native.md")


def first_line(path: Path) -> str:
    """The first line of a module's docstring, or of the comment that opens a C file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0].removesuffix(".")
    comment = text.removeprefix("/*").partition("*/")[0].replace(" *", " ")
    return " ".join(comment.split()).partition(". ")[0].removesuffix(".")


def room(folder: Path, files: list[Path], title: str) -> list[str]:
    """The lines of one folder."""
    opening = folder / "__init__.py"
    lines = ["", f"### {title}", ""]
    if opening in files and folder != PACKAGE:
        lines += [f"{first_line(opening)}.", ""]
    rows = [path for path in files if path.name != "__init__.py"]
    if rows:
        lines += ["| file | what it does |", "|---|---|"]
    lines += [f"| `{path.name}` | {first_line(path).replace('|', '&#124;')} |" for path in rows]
    return lines


def make_map() -> str:
    """Every folder of the package with its files, and the C code."""
    folders: dict[Path, list[Path]] = {}
    for path in sorted(PACKAGE.rglob("*.py"), key=lambda path: (path.parent, path.name)):
        folders.setdefault(path.parent, []).append(path)
    lines = []
    for folder, files in folders.items():
        lines += room(folder, files, f"{folder.relative_to(PACKAGE.parent).as_posix()}/")
    native = ROOT / "native"
    code = sorted(path for path in native.iterdir() if path.suffix in (".c", ".h"))
    return "\n".join([*lines, *room(native, code, "native/"), "", ""])


def test_the_map_has_every_file() -> None:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    found, mark, after = rest.partition(END)
    assert mark, f"{PAGE.name} has lost the marks around its map"
    if os.environ.get("ELMORE_DOCS") == "write":
        PAGE.write_text(before + BEGIN + make_map() + END + after, encoding="utf-8")
        return
    assert found == make_map(), "run ELMORE_DOCS=write pytest tests/contract/test_map.py"


@pytest.mark.parametrize("name", LEADING)
def test_the_files_that_pages_name_exist(name: str) -> None:
    text = (ROOT / "docs" / name).read_text(encoding="utf-8").partition(BEGIN)[0]
    named = set(re.findall(r"`((?:\w+/)+(?:\w+\.(?:py|c|h))?|\w+\.py)`", text))
    assert len(named) > 4
    lost = [path for path in named if not any((at / path).exists() for at in (PACKAGE, ROOT))]
    assert not lost, f"{name} names files that do not exist"
