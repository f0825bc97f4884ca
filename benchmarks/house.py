"""How large the code is, and how it is divided: files, lines, functions, comments, repeated names.

    python benchmarks/house.py                    # the work tree
    python benchmarks/house.py --rev 5bb7da0      # a revision
    python benchmarks/house.py --rev 5bb7da0 --rev HEAD --by-room

Code lines are lines with code: no blank lines, comments or docstrings. Comments are counted per
code line, those on lines of their own and, apart from them, those after code; directives such as
`noqa` do not count.
"""

from __future__ import annotations

import argparse
import ast
import collections
import io
import json
import re
import statistics
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "src/elmore"
# Files that say nothing by their names, and may be short.
FIXED = ("__init__.py", "__main__.py")
SMALL = 60
_DIRECTIVE = re.compile(r"#\s*(type:|noqa|fmt:|pragma)")


@dataclass(frozen=True)
class File:
    """A Python file.

    Attributes:
        path: below the package.
        lines: all of them.
        code: lines with code.
        comments: lines that hold a comment alone.
        remarks: comments after code.
        functions: the length of each function and method, docstring and decorators included.
        classes: names of the classes at the top of the file.
    """

    path: str
    lines: int
    code: int
    comments: int
    remarks: int
    functions: tuple[int, ...]
    classes: tuple[str, ...]

    @property
    def room(self) -> str:
        """The folder below the package; "top level" for files beside `__init__.py`."""
        return self.path.split("/")[0] if "/" in self.path else "top level"

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]


def measure(path: str, text: str) -> File:
    """Measure one file."""
    tree = ast.parse(text)
    code, comments, remarks = count_lines(text, tree)
    functions = tuple(
        (node.end_lineno or node.lineno)
        - min([node.lineno, *(d.lineno for d in node.decorator_list)])
        + 1
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    classes = tuple(node.name for node in tree.body if isinstance(node, ast.ClassDef))
    return File(path, text.count("\n"), code, comments, remarks, functions, classes)


def count_lines(text: str, tree: ast.Module) -> tuple[int, int, int]:
    """Count lines with code, lines with a comment alone, and comments after code."""
    docstrings = {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and ast.get_docstring(node, clean=False) is not None
        for line in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
    }
    code: set[int] = set()
    comments: set[int] = set()
    silent = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            if not _DIRECTIVE.match(token.string):
                comments.add(token.start[0])
        elif token.type not in silent:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - docstrings), len(comments - code), len(comments & code)


def work_tree() -> dict[str, str]:
    """The package as it is now."""
    folder = ROOT / PACKAGE
    return {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*.py"))
    }


def revision(name: str) -> dict[str, str]:
    """The package as it was."""
    listed = _git("ls-tree", "-r", "--name-only", name, PACKAGE + "/").splitlines()
    return {
        path.removeprefix(PACKAGE + "/"): _git("show", f"{name}:{path}")
        for path in listed
        if path.endswith(".py")
    }


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"house.py: git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout


def percentile(values: Sequence[int], share: float) -> int:
    """The value below which a share of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0


def figures(files: Sequence[File]) -> dict[str, float]:
    """The figures of some files."""
    lines = [file.lines for file in files]
    functions = [length for file in files for length in file.functions]
    code = sum(file.code for file in files)
    return {
        "files": len(files),
        "lines": sum(lines),
        "code lines": code,
        "median file": int(statistics.median(lines)) if lines else 0,
        "p90 file": percentile(lines, 0.9),
        "functions": len(functions),
        "median function": int(statistics.median(functions)) if functions else 0,
        "p90 function": percentile(functions, 0.9),
        "comment lines, % of code": round(100 * sum(f.comments for f in files) / max(1, code), 1),
        "comments after code, %": round(100 * sum(f.remarks for f in files) / max(1, code), 1),
        f"files under {SMALL} lines": sum(f.lines < SMALL and f.name not in FIXED for f in files),
    }


def repeated(names: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Names that occur in several files, with the files."""
    found: dict[str, list[str]] = collections.defaultdict(list)
    for name, path in names:
        found[name].append(path)
    return {name: paths for name, paths in sorted(found.items()) if len(paths) > 1}


def report(texts: Mapping[str, str], *, by_room: bool) -> dict[str, object]:
    """All figures of a package, as JSON values."""
    files = [measure(path, text) for path, text in texts.items()]
    same_files = repeated((f.name, f.path) for f in files if f.name not in FIXED)
    same_classes = repeated((name, f.path) for f in files for name in f.classes)
    result: dict[str, object] = {
        **figures(files),
        "repeated file names": len(same_files),
        "repeated class names": len(same_classes),
        "names of files": same_files,
        "names of classes": same_classes,
    }
    if by_room:
        rooms = sorted({file.room for file in files})
        result["rooms"] = {r: figures([f for f in files if f.room == r]) for r in rooms}
    return result


def show(results: Mapping[str, Mapping[str, object]]) -> None:
    """Print one column for each package."""
    first = next(iter(results.values()))
    print("".join(f"{name:>14}" for name in ("", *results)).replace(" " * 14, " " * 28, 1))
    for key, value in first.items():
        if isinstance(value, int | float):
            row = (f"{result[key]:>14,}" for result in results.values())
            print(f"{key:<28}{''.join(row)}")
    for name, result in results.items():
        for key in ("names of files", "names of classes"):
            for repeated_name, paths in dict(result[key]).items():  # type: ignore[call-overload]
                print(f"{name}: {repeated_name}: {', '.join(paths)}")
        for room, values in dict(result.get("rooms", {})).items():  # type: ignore[call-overload]
            print(
                f"{name}: {room:<16}{values['files']:>5} files{values['lines']:>8,} lines"
                f"{values['comment lines, % of code']:>6} % comments"
            )


def main() -> None:
    """Parse the flags, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--rev", action="append", default=[], help="a git revision; may be repeated"
    )
    parser.add_argument("--by-room", action="store_true", help="figures of each folder too")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args()
    packages = {name: revision(name) for name in args.rev} or {"work tree": work_tree()}
    results = {name: report(texts, by_room=args.by_room) for name, texts in packages.items()}
    if args.json:
        print(json.dumps(results, indent=1))
    else:
        show(results)


if __name__ == "__main__":
    main()
