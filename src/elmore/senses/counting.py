"""Count words: how frequent they are, how evenly they are spread, and what stands near them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from elmore.base.messages import shown
from elmore.errors import ConfigError, InputError
from elmore.report import Report, Row
from elmore.senses.index import Index, Rows
from elmore.text.patterns import is_word
from elmore.text.statistics import dispersion, log_dice, log_likelihood

Measure = Literal["log_likelihood", "log_dice"]


def frequencies(
    index: Index,
    words: str | Sequence[str | Sequence[str]],
    *,
    by: str | None = None,
    period: int | None = None,
) -> Report:
    """How often words occur in a corpus, per million words, and how evenly.

    All their occurrences count, not only those of which the index keeps the vectors.

    Args:
        index: the corpus, or the documents that were selected with `where`.
        words: of the index; a pattern, or a list of words inside the list, is counted as one.
        by: a field of the documents, for a row per group.
        period: join so many years in a group.
    """
    groups = {"": index} if by is None else index.groups(by, period)
    rows: list[Row] = []
    for pattern in [words] if isinstance(words, str) else words:
        for label, part in groups.items():
            mine, sizes = part.frequency(pattern), part.n_words
            total = int(sizes.sum())
            rows.append(
                {
                    "word": pattern if isinstance(pattern, str) else ", ".join(pattern),
                    **({} if by is None else {by: label}),
                    "count": int(mine.sum()),
                    "per_million": float(1e6 * mine.sum() / max(total, 1)),
                    "documents": int((mine > 0).sum()),
                    "of": int((sizes > 0).sum()),
                    "dispersion": dispersion(mine[sizes > 0], sizes[sizes > 0]),
                }
            )
    return Report(
        name=f"frequencies in {index.label}",
        metrics={},
        measured_on={"words": int(index.n_words.sum())},
        tables={"frequencies": rows},
        notes=[
            "dispersion: Gries' DP, from 0 (spread like the documents' sizes) to 1 (in one place)"
        ],
    )


def collocates(
    index: Index,
    word: str | Sequence[str],
    *,
    rows: Rows | None = None,
    window: int = 5,
    min_count: int = 3,
    top: int = 20,
    sort: Measure = "log_likelihood",
) -> Report:
    """The words that stand near a word more often than elsewhere in the corpus.

    Args:
        index: the corpus.
        word: see `Index.rows`.
        rows: some of its uses, such as those of a sense (`Sense.rows`); by default all that the
            index keeps.
        window: how many tokens on each side count as near, within the sentence.
        min_count: leave out words that are near less often.
        top: how many to list.
        sort: the measure of association, the highest first: "log_likelihood" (Dunning's G2; above
            10.8 chance is unlikely, p < 0.001) favours frequent words, "log_dice" (at most 14)
            those that are rarely elsewhere.

    Raises:
        InputError: no word is near often enough.
    """
    if sort not in get_args(Measure):
        raise ConfigError(f"sort={sort!r} is unknown; use {', '.join(get_args(Measure))}")
    near: Counter[str] = Counter()
    left: Counter[str] = Counter()
    every = index.rows(word)
    rows = every if rows is None else rows
    for use in map(index.use, rows.tolist()):
        tokens = [token.lower() for token in use.tokens]
        end = use.position + use.width
        before = tokens[max(0, use.position - window) : use.position]
        left.update(before)
        near.update([*before, *tokens[end : end + window]])
    names = [n for n, count in near.items() if count >= min_count and is_word(n)]
    if not names:
        raise InputError(
            f"no word is near '{shown(word, 60)}' {min_count} times in {len(rows)} uses; lower "
            "min_count (--min-count)"
        )
    whole, size = index.corpus_counts, int(sum(index.documents.n_words))
    observed = np.array([near[name] for name in names], float)
    total = float(sum(n for name, n in near.items() if is_word(name)))
    # Windows may overlap, so that a word can be near more often than it occurs.
    count = np.maximum([whole.get(name, 0) for name in names], observed)
    likelihood = log_likelihood(observed, count - observed, total, max(size - total, 1.0))
    # Of a frequent word the index keeps a sample: near all of its uses there would be more.
    scale = max(1.0, index.frequency(word).sum() / max(len(every), 1))
    dice = log_dice(scale * observed, scale * len(rows), count)
    values = likelihood if sort == "log_likelihood" else dice
    best = np.argsort(-values, kind="stable")[:top]
    found: list[Row] = [
        {
            "collocate": names[k],
            "count": int(observed[k]),
            "before": left[names[k]],
            "expected": float(total * count[k] / max(size, 1)),
            "log_likelihood": float(likelihood[k]),
            "log_dice": float(dice[k]),
        }
        for k in best
        if values[k] > 0
    ]
    label = word if isinstance(word, str) else ", ".join(word)
    return Report(
        name=f"collocates of {label}",
        metrics={},
        measured_on={"uses": len(rows), "window": window},
        tables={f"collocates of {label}": found},
    )
