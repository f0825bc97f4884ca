"""Spans as tags and tags as spans: IOB1, IOB2, BIOES (also called BIOUL)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Literal, NamedTuple

Scheme = Literal["IOB2", "BIOUL"]
# Tags that always begin a span, and tags that always end one, in any of the schemes.
_BEGIN, _END = "BSU", "ELSU"
# Between the parts of a tag that is read from two columns, such as PROPN+NNP.
JOINT = "+"


class Span(NamedTuple):
    """A labelled span of tokens, both ends included."""

    label: str
    first: int
    last: int


def is_tag(tag: str) -> bool:
    """Whether a text is O or a tag of one of the schemes."""
    return tag == "O" or (len(tag) > 2 and tag[0] in "BIELSU" and tag[1] == "-")


def spans_from_tags(tags: Sequence[str]) -> tuple[Span, ...]:
    """Read spans as conlleval does, in any of the schemes.

    A span starts at B, S or U, and at I, E or L after O, after another label and at the start; it
    ends before O, before another start or label, and after E, L, S or U.
    """
    spans: list[Span] = []
    first, label = -1, ""
    for place, tag in enumerate([*tags, "O"]):
        kind, name = tag[0], tag[2:]
        if first >= 0 and (kind == "O" or kind in _BEGIN or name != label):
            spans.append(Span(label, first, place - 1))
            first = -1
        if kind != "O" and first < 0:
            first, label = place, name
        if kind in _END and first >= 0:
            spans.append(Span(label, first, place))
            first = -1
    return tuple(spans)


def tags_from_spans(spans: Iterable[Span], length: int, scheme: Scheme) -> list[str]:
    """Write spans that do not overlap as tags."""
    tags = ["O"] * length
    for label, first, last in spans:
        tags[first : last + 1] = [f"I-{label}"] * (last - first + 1)
        tags[first] = f"B-{label}"
        if scheme == "BIOUL":
            tags[last] = f"L-{label}" if last > first else f"U-{label}"
    return tags


def split_tags(tags: Collection[str]) -> dict[str, tuple[str, ...]]:
    """The parts of all tags of a tagger; a tag is one part if not all are joined in the same way.

    A tag of the user's own may have a + for other reasons, such as in `C++`.
    """
    parts = {tag: tuple(tag.split(JOINT)) for tag in tags}
    joined = len({len(some) for some in parts.values()}) == 1 and all(map(all, parts.values()))
    return parts if joined else {tag: (tag,) for tag in tags}


def usual_tags(tagged: Iterable[tuple[str, str]]) -> Callable[[str], str]:
    """What gives the most frequent tag of a word; unseen words get that of words seen once."""
    counts: dict[str, Counter[str]] = {}
    for word, tag in tagged:
        counts.setdefault(word, Counter())[tag] += 1
    # Unseen words are rare ones, so they are taken for what words seen once are.
    once = Counter(tag for seen in counts.values() if seen.total() == 1 for tag in seen)
    other = (once or sum(counts.values(), Counter())).most_common(1)[0][0]
    usual = {word: seen.most_common(1)[0][0] for word, seen in counts.items()}
    return lambda word: usual.get(word, other)


def tag_names(labels: Iterable[str], scheme: Scheme) -> list[str]:
    """List all tags of labels, O first."""
    kinds = "BI" if scheme == "IOB2" else "BILU"
    return ["O", *(f"{kind}-{label}" for label in sorted(set(labels)) for kind in kinds)]


def may_follow(after: str, before: str, scheme: Scheme) -> bool:
    """Whether a tag may come after another; O stands before the first and after the last.

    Tags that obey this always read back as themselves.
    """
    same = before[2:] == after[2:] and before != "O"
    if scheme == "IOB2":
        return after[0] in "OB" or same
    if before[0] in "BI":
        return same and after[0] in "IL"
    return after[0] in "OBU"


def are_names(value: Any) -> bool:
    """Whether a value from a file is a list of names."""
    return isinstance(value, list) and bool(value) and all(isinstance(n, str) for n in value)


def are_tags(value: Any, scheme: Scheme) -> bool:
    """Whether a value from a file is the list of all tags of a scheme, as `tag_names` makes it."""
    return are_names(value) and value == tag_names((tag[2:] for tag in value[1:]), scheme)
