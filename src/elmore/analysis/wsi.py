"""Word sense induction: do the groups of `elmore.senses.induce` agree with senses that people gave?

Reads the folders of SemEval-2010 task 14 and SemEval-2013 task 13 as they were published: one XML
file per word, and a key with the senses of each use. For one sense per use the measures are
V-measure and paired F (Manandhar et al. 2010), for several senses with weights fuzzy normalised
mutual information and fuzzy B-cubed (Jurgens and Klapaftis 2013). AVG is the geometric mean of two.
"""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET  # what could expand is refused
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmore.base.messages import SILENT, Progress
from elmore.elmo import Elmo
from elmore.errors import InputError
from elmore.language_model.sense_vectors import Place
from elmore.report import Report, Row
from elmore.senses.induction import induce
from elmore.text.reading import numbered_lines
from elmore.text.tokenizer import Sentence

Weights = NDArray[np.float64]
# The senses of each use of a word with their weights.
Key = Mapping[str, Mapping[str, float]]
# Of the official program of 2013: entropies are of weights in ten bins.
_BINS = 10
# A use is answered with its likeliest sense, and with others that are nearly as likely.
_AS_LIKELY = 0.8
# SemEval-2010 does not say where in its sentence the word is. These forms begin otherwise.
_IRREGULAR = {
    "lay": ("laid",),
    "lie": ("lay", "lain", "lying"),
    "stick": ("stuck",),
    "swear": ("swore", "sworn"),
    "swim": ("swam", "swum"),
    "figure": ("figger", "figgered"),
}
_ENDINGS = ("", "s", "es", "d", "ed", "ing", "er", "ers", "'s")
_PARTS = {"n": "nouns", "v": "verbs", "j": "adjectives"}


class _Scores(NamedTuple):
    """The scores of one word."""

    uses: int
    senses: int
    groups: int
    v: float
    f: float
    fnmi: float
    precision: float
    recall: float


class SenseInduction:
    """Divide the uses of each word, and compare the groups with the key.

    Args:
        elmo: a model that has a softmax; not needed for `answers`.
        n_senses: how many groups; see `elmore.senses.induce`.
        answers: score this key instead.
        limit: the first so many words only.
        seed: see `elmore.senses.induce`.
        progress: counts words.
    """

    def __init__(
        self,
        elmo: Elmo | None = None,
        *,
        n_senses: int | None = None,
        answers: Path | None = None,
        limit: int | None = None,
        seed: int = 0,
        progress: Progress = SILENT,
    ) -> None:
        self.elmo, self.n_senses, self.answers = elmo, n_senses, answers
        self.limit, self.seed, self.progress = limit, seed, progress

    def run(self, data: str | Path) -> Report:
        """Measure on the folder of a task."""
        folder = Path(data)
        keys = sorted(folder.rglob("all.key"))
        if len(keys) != 1:
            raise InputError(f"'{folder}' has {len(keys)} files all.key; name the task's folder")
        gold = dict(list(read_key(keys[0]).items())[: self.limit])
        given = None if self.answers is None else read_key(self.answers)
        uses = {} if given is not None else read_uses(folder)
        found: dict[str, _Scores] = {}
        whole: dict[str, _Scores] = {}
        for word, truth in gold.items():
            if given is not None:
                answer = given.get(word, {})
            else:
                mine = {name: place for name, place in uses.get(word, {}).items() if name in truth}
                made = induce(
                    list(mine.values()), elmo=self.elmo, n_senses=self.n_senses, seed=self.seed
                )
                answer = {
                    name: {str(k): 1.0 for k in np.flatnonzero(row > _AS_LIKELY * row.max())}
                    for name, row in zip(mine, made.memberships, strict=True)
                }
            found[word] = _score(truth, answer)
            whole[word] = _score(truth, {name: {"1": 1.0} for name in truth})
            self.progress.update(1)
        one = [word for word, scores in found.items() if scores.senses == 1]
        left = [word for word in one if found[word].groups == 1]
        rows = [_row("induced", found), _row("one sense", whole)]
        parts = [
            _row(name, {w: s for w, s in found.items() if w.endswith(f".{letter}")}, "words")
            for letter, name in _PARTS.items()
            if any(word.endswith(f".{letter}") for word in found)
        ]
        return Report(
            name="wsi",
            metrics={
                **{name: float(v) for name, v in rows[0].items() if isinstance(v, float)},
                "words with one sense": float(len(one)),
                "of them left whole": float(len(left)),
            },
            measured_on={
                "model": None if self.elmo is None else self.elmo.checkpoint.origin,
                "data": str(data),
                "answers": None if self.answers is None else str(self.answers),
                "words": len(found),
                "uses": sum(scores.uses for scores in found.values()),
                "seed": self.seed,
            },
            tables={
                "wsi": rows,
                "by part of speech": parts,
                "by word": [_row(word, {word: scores}, "word") for word, scores in found.items()],
            },
            notes=[
                "V, F: V-measure and paired F, means weighted by uses, of the likeliest sense of "
                "each use; FNMI, FBC: means over words; AVG: geometric mean of the two before it",
                "SemEval-2010 is scored by V and F, SemEval-2013 by FNMI and FBC",
            ],
        )


def _row(name: str, words: Mapping[str, _Scores], title: str = "system") -> Row:
    scores = np.array(list(words.values()), np.float64)
    uses, _, groups, v, f, fnmi, precision, recall = scores.T
    v, f = (100 * float(np.average(values, weights=uses)) for values in (v, f))
    fnmi, both = 100 * float(fnmi.mean()), (float(precision.mean()), float(recall.mean()))
    fbc = 100 * _harmonic(*both)
    values = {"V": v, "F": f, "AVG 2010": (v * f) ** 0.5}
    values |= {"FNMI": fnmi, "FBC": fbc, "AVG 2013": (max(fnmi, 0) * fbc) ** 0.5}
    rounded = {key: round(value, 4) for key, value in values.items()}
    return {title: name, **rounded, "groups": round(float(groups.mean()), 2)}


def read_key(path: Path) -> dict[str, dict[str, dict[str, float]]]:
    """Read a key: word, use, and senses with weights, `word.n word.n.1 sense/4 other/1`.

    Returns:
        word to use to sense to weight; the largest weight of a use is 1, as in the official
        programs.
    """
    words: dict[str, dict[str, dict[str, float]]] = defaultdict(dict)
    for number, line in numbered_lines(path):
        word, *rest = line.split()
        senses: dict[str, float] = {}
        try:
            for sense in rest[1:]:
                name, _, weight = sense.partition("/")
                senses[name] = float(weight or 1)
        except ValueError:
            senses = {}
        largest = max(senses.values(), default=0)
        if not (senses and min(senses.values()) >= 0 and 0 < largest < np.inf):
            raise InputError(
                "expected a word, a use and its senses with weights; correct the line",
                file=str(path),
                line=number,
            )
        words[word][rest[0]] = {name: weight / largest for name, weight in senses.items()}
    return dict(words)


def read_uses(folder: Path) -> dict[str, dict[str, Place]]:
    """The uses of each word, from the XML files of either task in a folder."""
    words: dict[str, dict[str, Place]] = {}
    for path in sorted(folder.rglob("*.xml")):
        text = path.read_bytes()
        try:
            if b"<!" in text:  # entities that expand are no part of these files
                raise ValueError("it has a document type")
            root = ET.fromstring(text)  # noqa: S314
            words[path.stem] = dict(
                _uses_2013(root) if root.tag == "instances" else _uses_2010(root)
            )
        except (ET.ParseError, ValueError, KeyError) as error:
            raise InputError(
                f"not a word of SemEval-2010 or 2013 ({error})", file=str(path)
            ) from None
    if not words:
        raise InputError("there is no XML file; name the task's folder", file=str(folder))
    return words


def _uses_2013(root: ET.Element) -> Iterator[tuple[str, Place]]:
    for one in root:
        text = one.text or ""
        start, end = int(one.attrib["tokenStart"]), int(one.attrib["tokenEnd"])
        before, word, after = _words(text[:start]), text[start:end], _words(text[end:])
        tokens = (*before, *([word] if word.strip() else ["-"]), *after)
        yield one.attrib["id"], (Sentence(tokens), len(before))


def _words(text: str) -> list[str]:
    """Words, numbers and single marks, with n't and 's apart, as in the text of the model."""
    return re.findall(r"\w+(?=n't)|n't|'\w+|\w+(?:[-.,]\w+)*|[^\w\s]", text)


def _uses_2010(root: ET.Element) -> Iterator[tuple[str, Place]]:
    lemma = root.tag.split(".")[0].lower()
    for one in root:
        target = one.find("TargetSentence")
        tokens = tuple((target.text or "").split()) if target is not None else ()
        if not tokens:
            raise ValueError(f"{one.tag} has no target sentence")
        yield one.tag, (Sentence(tokens), _find(lemma, tokens))


def _find(lemma: str, tokens: Sequence[str]) -> int:
    """Where a form of the word is, or else what begins most like it."""
    stems = {lemma, lemma.removesuffix("e"), lemma + lemma[-1], lemma.removesuffix("y") + "i"}
    forms = {stem + ending for stem in stems for ending in _ENDINGS} | {*_IRREGULAR.get(lemma, ())}
    lower = [token.lower() for token in tokens]
    for k, token in enumerate(lower):
        if token in forms:
            return k

    def same(token: str) -> int:
        return sum(1 for k in range(len(lemma)) if token.startswith(lemma[: k + 1]))

    return max(range(len(lower)), key=lambda k: (lemma in lower[k], same(lower[k])))


# ------------------------------------------------------------------------------------ measures


def _score(truth: Key, answer: Key) -> _Scores:
    """The scores of one word; a use that is not answered has no group."""
    uses = list(truth)
    gold, mine = _table(uses, truth), _table(uses, answer)
    answered = np.flatnonzero(mine.sum(axis=1))
    best = (gold.argmax(axis=1), np.where(mine.any(axis=1), mine.argmax(axis=1), mine.shape[1]))
    groups = len(np.unique(mine[answered].argmax(axis=1))) if len(answered) else 0
    return _Scores(
        len(uses), len(np.unique(best[0])), groups, *hard_scores(*best), *fuzzy_scores(gold, mine)
    )


def _table(uses: Sequence[str], key: Key) -> Weights:
    """The weights of senses, (n_uses, n_senses)."""
    senses = sorted({sense for use in uses for sense in key.get(use, ())})
    return np.array([[key.get(use, {}).get(s, 0.0) for s in senses] for use in uses]).reshape(
        len(uses), len(senses)
    )


def hard_scores(gold: NDArray[np.int64], groups: NDArray[np.int64]) -> tuple[float, float]:
    """V-measure and paired F of two divisions, (n,) each."""
    table = np.zeros((int(gold.max()) + 1, int(groups.max()) + 1))
    np.add.at(table, (gold, groups), 1)
    h_gold, h_groups, both = map(_entropy, (table.sum(axis=1), table.sum(axis=0), table))
    homogeneity = 1.0 if h_gold == 0 else 1 - (both - h_groups) / h_gold
    completeness = 1.0 if h_groups == 0 else 1 - (both - h_gold) / h_groups
    same, of_gold, of_groups = (
        float((counts * (counts - 1) / 2).sum())
        for counts in (table, table.sum(axis=1), table.sum(axis=0))
    )
    paired = _harmonic(same / of_groups if of_groups else 0, same / of_gold if of_gold else 0)
    return _harmonic(homogeneity, completeness), paired


def rand_index(one: NDArray[np.int64], two: NDArray[np.int64]) -> float:
    """The adjusted Rand index: 1 for the same groups, about 0 by chance."""
    table = np.zeros((one.max() + 1, two.max() + 1))
    np.add.at(table, (one, two), 1)

    def pairs(counts: NDArray[np.float64]) -> float:
        return float((counts * (counts - 1) / 2).sum())

    both, rows, columns = pairs(table), pairs(table.sum(axis=1)), pairs(table.sum(axis=0))
    chance = rows * columns / max(pairs(np.array([len(one)], np.float64)), 1)
    most = (rows + columns) / 2
    return 1.0 if most == chance else (both - chance) / (most - chance)


def fuzzy_scores(gold: Weights, groups: Weights) -> tuple[float, float, float]:
    """Fuzzy NMI, and precision and recall of fuzzy B-cubed.

    Args:
        gold: weights of senses, (n, n_senses).
        groups: weights of groups, (n, n_groups); zeros where a use is not answered.
    """
    return _fuzzy_information(gold, groups), *_fuzzy_cubed(gold, groups)


def _fuzzy_cubed(gold: Weights, groups: Weights) -> tuple[float, float]:
    """How much two uses agree in one division, where they agree at all in the other."""
    agreements = []
    for weights in (gold, groups):
        sums = np.zeros((len(weights), len(weights)))
        for column in weights.T:
            both = (column[:, None] > 0) & (column > 0)
            sums += both * (1 - np.abs(column[:, None] - column))
        np.fill_diagonal(sums, 0)
        agreements.append(sums)
    least = np.minimum(*agreements)
    means = []
    for sums in agreements:
        shares = np.divide(least, sums, out=np.zeros_like(sums), where=sums > 0)
        means.append(float((shares.sum(axis=1) / np.maximum((sums > 0).sum(axis=1), 1)).mean()))
    return means[0], means[1]


def _fuzzy_information(gold: Weights, groups: Weights) -> float:
    """Lancichetti et al. (2009) for weights: each sense with the group that says most about it."""
    # The bin of a weight: 0 for up to 0.1, and so on.
    bins = [np.maximum(np.ceil(np.round(w * _BINS, 9)) - 1, 0) for w in (gold, groups)]
    own = [np.array([_joint(column) for column in one.T]) for one in bins]
    total = max(own[0].sum(), own[1].sum())
    if not total:
        return 0.0
    shared = 0.0
    for this, other, weights, theirs, entropies, others in (
        (bins[0], bins[1], gold, groups, *own),
        (bins[1], bins[0], groups, gold, *own[::-1]),
    ):
        for column, mine, entropy in zip(this.T, weights.T, entropies, strict=True):
            known = [
                _joint(column, two) - h
                for two, their, h in zip(other.T, theirs.T, others, strict=True)
                if _says_more(mine > 0, their > 0)
            ]
            shared += entropy - min(known, default=entropy)
    return float(0.5 * shared / total)


def _says_more(one: NDArray[np.bool_], two: NDArray[np.bool_]) -> bool:
    """Whether two sets are alike, rather than the one what the other is not."""
    shares: list[float] = [
        float(np.mean(both)) for both in (one & two, ~one & ~two, one & ~two, ~one & two)
    ]
    parts = [-share * math.log(share) if share else 0.0 for share in shares]
    return parts[0] + parts[1] >= parts[2] + parts[3]


def _joint(*columns: Weights) -> float:
    """The entropy of columns taken together, in bits."""
    counts = Counter(zip(*(column.tolist() for column in columns), strict=True))
    return _entropy(np.array(list(counts.values()), np.float64)) / math.log(2)


def _entropy(counts: Weights) -> float:
    shares = counts[counts > 0] / counts.sum()
    total: float = -float(np.sum(shares * np.log(shares)))
    return total


def _harmonic(one: float, two: float) -> float:
    return 2 * one * two / (one + two) if one + two else 0.0
