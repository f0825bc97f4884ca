"""The reference in docs/api, written from the docstrings of the public names.

A page holds what is written by hand and, between two marks, what this module writes:

    <!-- ::: elmore.Elmo -->
    ...
    <!-- end -->

`<!-- ::: elmore.tasks.Ner parse -->` shows no other method than `parse`.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["marked", "written"]

MARK = re.compile(r"^<!-- ::: (\S+)(.*?) -->\n(.*?)^<!-- end -->$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^(#+) ", re.MULTILINE)
SECTION = re.compile(r"(Args|Attributes|Returns|Yields|Raises|Examples):")
ITEM = re.compile(r"    (\*{0,2}\w[\w.]*): (.*)")
CODE = re.compile(r"(`[^`]*`)")
WIDTH = 90


def marked(page: str) -> list[str]:
    """The names that a page describes."""
    return [match[1] for match in MARK.finditer(page)]


def written(page: str) -> str:
    """A page with everything between its marks written again."""
    empty = MARK.sub(r"<!-- ::: \1\2 -->\n<!-- end -->", page)

    def replace(match: re.Match[str]) -> str:
        # Sections are one deeper than the last heading above them that is written by hand.
        level = len(HEADING.findall(empty, 0, match.start())[-1]) + 1
        lines = described(match[1], match[2].split(), level)
        return "\n".join([f"<!-- ::: {match[1]}{match[2]} -->", *lines, "<!-- end -->"])

    return MARK.sub(replace, empty)


def described(name: str, members: Sequence[str], level: int) -> list[str]:
    """The section of a function or class."""
    module, _, last = name.rpartition(".")
    value = getattr(importlib.import_module(module), last)
    lines = [f'<a id="{name}"></a>', "", f"{'#' * level} {last}", ""]
    if not isinstance(value, type):
        return [*lines, *signature(last, value), *text(value)]
    lines += [] if issubclass(value, Exception) else signature(last, value)
    lines += text(value)
    everything = {key: member for kind in _parts(value) for key, member in vars(kind).items()}
    public = {key: member for key, member in everything.items() if not key.startswith("_")}
    shown = {key: public[key] for key in public if not members or key in members}
    properties = {key: m for key, m in shown.items() if is_property(m)}
    if properties:
        lines += ["**Properties**", ""]
        lines += [f"- `{key}`: {' '.join(text(m)).strip()}" for key, m in properties.items()]
        lines += [""]
    for key, member in shown.items():
        function = inspect.unwrap(getattr(member, "__func__", member))
        if inspect.isfunction(function):
            lines += [f'<a id="{name}.{key}"></a>', "", f"{'#' * (level + 1)} {last}.{key}", ""]
            lines += [*signature(key, function), *text(member)]
    return lines


def _parts(value: type) -> list[type]:
    """A class and those that it is divided into: bases of the facade, which have no page."""
    return [value, *(kind for kind in value.__bases__ if kind.__name__ == "Embedder")]


def is_property(member: Any) -> bool:
    """Whether it is read like a value."""
    return isinstance(member, property | functools.cached_property)


def signature(name: str, value: Callable[..., Any]) -> list[str]:
    """How it is called, in one line or with one line per parameter."""
    try:
        found = inspect.signature(value)
    except ValueError:  # a class that is only ever returned
        return []
    words: list[str] = []
    for parameter in found.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not any(w[0] == "*" for w in words):
            words.append("*")
        words.append(_parameter(parameter))
    returned = _annotation(found.return_annotation)
    arrow = f" -> {returned}" if returned and not isinstance(value, type) else ""
    line = f"{name}({', '.join(words)}){arrow}"
    if len(line) > WIDTH:
        line = "\n".join([f"{name}(", *(f"    {word}," for word in words), f"){arrow}"])
    return ["```python", line, "```", ""]


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    kind = _annotation(parameter.annotation)
    found = f"{stars}{parameter.name}{f': {kind}' if kind else ''}"
    if parameter.default is parameter.empty:
        return found
    # What has no value to show, such as a function, would show where it is in memory.
    default = re.sub(r"<.*>", "...", repr(parameter.default))
    return f"{found} = {default}" if kind else f"{found}={default}"


def _annotation(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def text(value: Any) -> list[str]:
    """A docstring as Markdown: its text, then a list for each section."""
    lines: list[str] = []
    section = ""
    for line in (inspect.getdoc(value) or "").splitlines():
        match = SECTION.fullmatch(line)
        if match:
            lines += ["```", ""] if section == "Examples" else []
            section = match[1]
            lines += [f"**{section}**", "", *(["```pycon"] if section == "Examples" else [])]
        elif section == "Examples":
            lines += [line.removeprefix("    ")] if line else []
        else:
            lines.append(_item(line) if section else escaped(line))
    return [*lines, *(["```"] if section == "Examples" else []), ""]


def _item(line: str) -> str:
    """A line of a section: the start of an item, or more of it."""
    match = ITEM.fullmatch(line)
    if match:
        return f"- `{match[1]}`: {escaped(match[2])}"
    more = line.removeprefix("    ")
    return f"  {escaped(more.strip())}" if more.startswith("    ") else escaped(more)


def escaped(line: str) -> str:
    """Keep `<` outside of code from becoming HTML."""
    if line.startswith("    "):
        return line
    parts = CODE.split(line)
    return "".join(p if p.startswith("`") else p.replace("<", "&lt;") for p in parts)
