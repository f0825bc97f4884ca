"""The tables of docs/english.md, from the result files of `yardsticks.py`.

Each table stands between `<!-- yardsticks: NAME -->` and `<!-- end -->`; the text around it is
written by hand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from md_table import table

PAGE = Path(__file__).resolve().parents[1] / "docs" / "english.md"
Result = dict[str, Any]


class Yardstick(NamedTuple):
    """A line of the first table: where its figure is, that of random weights, what is published."""

    title: str
    part: str
    name: str
    random: str | None = None
    beside: str = ""
    group: str = "metrics"


_RANDOM = "ALL random, layer 2, "
GLANCE = (
    Yardstick("perplexity, encyclopedia", "perplexity", "mean", group="wiki-core.test"),
    Yardstick("perplexity, novels", "perplexity", "mean", group="novels.test"),
    Yardstick(
        "universal tags (EWT), layer 1, %",
        "pos",
        "upos layer 1",
        "upos random, layer 1",
        "most frequent tag 86.2; paper 97.3 (Penn tags, WSJ)",
    ),
    Yardstick(
        "universal tags (EWT), layer 2, %",
        "pos",
        "upos layer 2",
        "upos random, layer 2",
        "paper 96.8 (Penn tags, WSJ)",
    ),
    Yardstick(
        "universal tags (EWT), mean of the layers, %", "pos", "upos mean", "upos random, mean"
    ),
    Yardstick("the same, test sentences joined to 500 tokens, %", "pos joined", "upos mean"),
    Yardstick(
        "senses (ALL), layer 2, nearest instance, F1",
        "wsd",
        "ALL layer 2, nearest instance",
        f"{_RANDOM}nearest instance",
        "first sense 65.2; paper 69.0 (four of the sets)",
    ),
    Yardstick(
        "senses (ALL), layer 2, averages, F1",
        "wsd",
        "ALL layer 2, sense averages",
        f"{_RANDOM}sense averages",
    ),
    Yardstick(
        "grammar (BLiMP, 67,000 pairs), forward, %",
        "blimp",
        "forward",
        beside="LSTM of 2 x 650 on 83 M tokens 69.8, Transformer-XL 69.6, GPT-2 81.5, people 88.6",
    ),
    Yardstick("grammar, backward, %", "blimp", "backward"),
    Yardstick("grammar, both directions, %", "blimp", "both"),
    Yardstick(
        "lexical substitution 2007, place, GAP",
        "substitutes",
        "GAP place",
        beside="random order 29.5, context2vec about 56",
    ),
    Yardstick(
        "lexical substitution 2007, place and word, GAP", "substitutes", "GAP place and word"
    ),
    *(
        Yardstick(
            f"SNLI retrieval among 1,000, `{pool}`, %",
            "retrieval",
            "SNLI retrieval, first",
            group=pool,
        )
        for pool in ("mean", "sif")
    ),
)


def glance(result: Result, before: Result) -> list[str]:
    """One line per yardstick: this model, the one before, random weights, published figures."""
    rows = [
        {
            "yardstick": line.title,
            "this model": _at(result, line, line.name),
            "16 November": _at(before, line, line.name),
            "random weights": _at(result, line, line.random),
            "beside it": line.beside,
        }
        for line in GLANCE
        if _at(result, line, line.name) is not None
    ]
    return table(rows, 1)


def perplexities(result: Result, before: Result) -> list[str]:
    """Each direction on the three test files."""
    titles = {
        "wiki-core.test": "encyclopedia (wiki-core.test)",
        "news.test": "news (news.test)",
        "novels.test": "novels by other authors (novels.test)",
    }
    rows = []
    for name, title in titles.items():
        found = result["perplexity"][name]
        rows.append(
            {
                "text": title,
                "tokens": f"{found['n_tokens']:,}",
                "words outside the vocabulary": f"{100 * found['oov_rate']:.1f} %",
                "forward": found["forward"],
                "backward": found["backward"],
                "mean": found["mean"],
                "16 November": before["perplexity"][name]["mean"],
            }
        )
    return table(rows, 1)


def long_input(result: Result, before: Result) -> list[str]:
    """Perplexity per fifth of long sequences."""
    rows = []
    for found in result["long"]["rows"]:
        for direction in ("forward", "backward"):
            fifths = [float(value) for value in found[direction]]
            rows.append(
                {
                    "sequence": f"{found['tokens']:,} tokens ({found['sequences']})",
                    "direction": direction,
                    **dict(zip(("1st fifth", "2nd", "3rd", "4th", "5th"), fifths, strict=True)),
                }
            )
    return table(rows, 1)


def layers(result: Result, before: Result) -> list[str]:
    """What each layer knows of parts of speech and senses, beside the controls."""
    pos = {row["vectors"]: row["test"] for row in result["pos"]["tables"]["upos"]}
    penn = {row["vectors"]: row["test"] for row in result["pos"]["tables"]["xpos"]}
    senses = {(row["vectors"], row["method"]): row["ALL"] for row in result["wsd"]["tables"]["wsd"]}
    first = senses["first sense", None]
    rows: list[dict[str, Any]] = [
        {
            "vectors": "none: most frequent tag, first sense of WordNet",
            "universal tags": pos["most frequent tag"],
            "Penn tags": penn["most frequent tag"],
            "senses, by average": first,
            "senses, by nearest instance": first,
        }
    ]
    rows += [
        {
            "vectors": _TITLES.get(name, name),
            "universal tags": score,
            "Penn tags": penn[name],
            "senses, by average": senses.get((name, "sense averages")),
            "senses, by nearest instance": senses.get((name, "nearest instance")),
        }
        for name, score in pos.items()
        if name != "most frequent tag"
    ]
    return table(rows, 1)


_TITLES = {
    "static vectors": "static: GloVe 6B, 100 dimensions",
    "layer 0": "layer 0: characters, no context",
    "mean": "mean of the layers",
    **{
        f"random, {part}": f"the same network with random weights, {part}"
        for part in ("layer 0", "layer 1", "layer 2", "mean")
    },
}


def phenomena(result: Result, before: Result) -> list[str]:
    """BLiMP by phenomenon."""
    return table(result["blimp"]["tables"]["by phenomenon"], 1)


# Each table, and the parts of the result that it needs.
TABLES: dict[str, tuple[Callable[[Result, Result], list[str]], tuple[str, ...]]] = {
    "glance": (glance, ()),
    "perplexity": (perplexities, ("perplexity",)),
    "long": (long_input, ("long",)),
    "layers": (layers, ("pos", "wsd")),
    "blimp": (phenomena, ("blimp",)),
}


def write_card(path: Path, before: Path | None) -> None:
    """Write the tables of the page from a result file, with an older model beside it."""
    result = json.loads(path.read_text(encoding="utf-8"))
    older = result if before is None else json.loads(before.read_text(encoding="utf-8"))
    text = PAGE.read_text(encoding="utf-8")
    for name, (lay_out, needed) in TABLES.items():
        if not set(needed) <= set(result):
            continue  # the page keeps the table that it has
        start, end = f"<!-- yardsticks: {name} -->\n", "<!-- end -->"
        pattern = re.compile(re.escape(start) + ".*?" + re.escape(end), re.DOTALL)
        if not pattern.search(text):
            raise SystemExit(f"{PAGE} has no place for the table {name!r}; add {start.strip()}")
        body = "\n".join([start, *lay_out(result, older), "", end])
        text = pattern.sub(lambda _, body=body: body, text)  # type: ignore[misc]
    PAGE.write_text(text, encoding="utf-8")


def _at(result: Result, line: Yardstick, name: str | None) -> float | None:
    """A figure; None where it was not measured."""
    found: float | None = result.get(line.part, {}).get(line.group, {}).get(name)
    return found
