"""Sense-annotated text: training corpus, test sets and the order of senses (Raganato et al. 2017).

A folder with one training corpus and any number of test sets, JSON lines `{"tok": [...], "inst":
[[start, end, lemma, pos, ...], ...]}`, and the inventory, lines `lemma#pos <TAB> senses <TAB> ...`
in the order of the dictionary. Files may be packed.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elmore.errors import ConfigError, InputError
from elmore.text.reading import numbered_lines

__all__ = ["Instance", "SenseText", "WsdData", "read_wsd"]

_TRAINING = "semcor"
# The order of the literature; other sets follow by name.
_SETS = ("senseval2", "senseval3", "semeval2007", "semeval2013", "semeval2015")
_TEXT = (".jsonl", ".jsonl.xz", ".jsonl.gz", ".jsonl.bz2")
_ORDER = ("_order.tsv", "_order.tsv.xz", "_order.tsv.gz", "_order.tsv.bz2")


@dataclass(frozen=True, slots=True)
class Instance:
    """A word to disambiguate.

    Attributes:
        sentence: its number in the text.
        start: first token.
        end: token after the last.
        lemma: lemma#pos, in lower case.
        senses: right keys.
    """

    sentence: int
    start: int
    end: int
    lemma: str
    senses: tuple[str, ...]


@dataclass(frozen=True)
class SenseText:
    """Sentences and the instances in them."""

    sentences: list[tuple[str, ...]]
    instances: list[Instance]


@dataclass(frozen=True)
class WsdData:
    """Everything in a folder.

    Attributes:
        senses: keys of a lemma#pos in the order of the dictionary.
        training: the training corpus; instances of lemmas that no test set asks for left out.
        tests: name of a set to its text.
    """

    senses: dict[str, list[str]]
    training: SenseText
    tests: dict[str, SenseText]


def read_wsd(folder: Path, *, limit: int | None = None) -> WsdData:
    """Read a folder.

    Args:
        folder: as said above.
        limit: of the training corpus, only so many sentences.
    """
    if not folder.is_dir():
        raise ConfigError(f"'{folder}' is no folder; wsd takes the folder with its files")
    texts = {
        path.name.partition(".")[0]: path
        for path in sorted(folder.iterdir())
        if path.name.endswith(_TEXT)
    }
    order = [path for path in sorted(folder.iterdir()) if path.name.endswith(_ORDER)]
    if _TRAINING not in texts or len(order) != 1 or len(texts) < 2:
        raise InputError(
            f"'{folder}' needs {_TRAINING}.jsonl, one or more test sets NAME.jsonl and one "
            "NAME_order.tsv; see docs/analysis.md"
        )
    training = texts.pop(_TRAINING)
    names = [name for name in _SETS if name in texts]
    names += [name for name in texts if name not in _SETS]
    senses = _read_order(order[0])
    tests = {name: _read_text(texts[name], senses, test=True) for name in names}
    asked = {instance.lemma for text in tests.values() for instance in text.instances}
    wanted = _read_text(training, senses, test=False, only=asked, limit=limit)
    return WsdData(senses, wanted, tests)


def _read_order(path: Path) -> dict[str, list[str]]:
    senses: dict[str, list[str]] = {}
    for number, line in numbered_lines(path):
        columns = line.split("\t")
        lemma = columns[0].rpartition("#")[0]
        if len(columns) < 2 or not lemma or not columns[1]:
            raise InputError(
                "expected lemma#pos, a tab and senses; correct the line",
                file=str(path),
                line=number,
            )
        senses[columns[0]] = [f"{lemma}%{tail}" for tail in columns[1].split(" ")]
    return senses


def _read_text(
    path: Path,
    senses: dict[str, list[str]],
    *,
    test: bool,
    only: Collection[str] | None = None,
    limit: int | None = None,
) -> SenseText:
    sentences: list[tuple[str, ...]] = []
    instances: list[Instance] = []
    for number, line in numbered_lines(path):
        if not line.strip():
            continue
        if limit is not None and len(sentences) >= limit:
            break
        try:
            record = json.loads(line)
            tokens = tuple(record["tok"])
            found = [_instance(len(sentences), item, tokens, test) for item in record["inst"]]
            if not all(isinstance(token, str) for token in tokens):
                raise ValueError("a token is no text")
        except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
            raise InputError(
                f"no sentence with senses ({type(error).__name__}: {error}); correct the line",
                file=str(path),
                line=number,
            ) from None
        for instance in found:
            if instance.lemma not in senses:
                raise InputError(
                    f"'{instance.lemma}' is not in the inventory; add its senses there",
                    file=str(path),
                    line=number,
                )
            if only is None or instance.lemma in only:
                instances.append(instance)
        sentences.append(tokens)
    if not instances and only is None:
        raise InputError("there is no instance; is it the right file?", file=str(path))
    return SenseText(sentences, instances)


def _instance(sentence: int, item: Any, tokens: tuple[str, ...], test: bool) -> Instance:
    start, end, lemma, pos = item[:4]
    if not (type(start) is int and type(end) is int and 0 <= start < end <= len(tokens)):
        raise ValueError(f"span {start}-{end} of {len(tokens)} tokens")
    lemma = lemma.lower()
    keys = item[5].split(" ") if test else [f"{lemma}%{tail}" for tail in item[4].split(" ")]
    return Instance(sentence, start, end, f"{lemma}#{pos}", tuple(keys))
