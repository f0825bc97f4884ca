"""Exact match and F1 of answers, as the official SQuAD 1.1 script counts them."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

__all__ = ["answer_scores", "exact_match", "normalise", "word_f1"]

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise(answer: str) -> str:
    """Lower-case, drop ASCII punctuation, then articles, then superfluous space."""
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split())


def exact_match(found: str, gold: str) -> float:
    """Give 1 if both are equal once normalised."""
    return float(normalise(found) == normalise(gold))


def word_f1(found: str, gold: str) -> float:
    """Give the F1 of the two bags of words."""
    guessed, right = normalise(found).split(), normalise(gold).split()
    same = sum((Counter(guessed) & Counter(right)).values())
    if not same:
        return 0.0
    precision, recall = same / len(guessed), same / len(right)
    return 2 * precision * recall / (precision + recall)


def answer_scores(found: Sequence[str], gold: Sequence[Sequence[str]]) -> dict[str, float]:
    """Score answers, each against the right answer that fits it best.

    Args:
        found: the predicted answer of each question; empty counts as wrong.
        gold: the right answers of each.

    Returns:
        f1 and exact match in percent; 0 for a question without a right answer.
    """
    totals = [0.0, 0.0]
    for answer, rights in zip(found, gold, strict=True):
        totals[0] += max((word_f1(answer, right) for right in rights), default=0.0)
        totals[1] += max((exact_match(answer, right) for right in rights), default=0.0)
    n = max(1, len(found))
    return {"f1": 100 * totals[0] / n, "exact match": 100 * totals[1] / n}
