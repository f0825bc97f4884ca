"""Uses of words in two periods, judged by people (DWUG, Schlechtweg et al. 2021).

A folder has `data/WORD/uses.csv` and `judgments.csv`, and `clusters/opt/WORD.csv`, with tabs. Three
questions: does the similarity of two uses agree with the judgements (Spearman), do groups of uses
agree with the clusters (adjusted Rand), and does change from one period to the other agree with the
change of the clusters (graded change: the Jensen-Shannon distance of their shares; Spearman)?
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmore.analysis.wsi import rand_index
from elmore.base.messages import SILENT, Progress
from elmore.elmo import Elmo
from elmore.embedding.results import unit
from elmore.errors import InputError
from elmore.language_model.sense_vectors import N_WORDS, Place, SenseVectors, SubstituteSpace
from elmore.report import Report, Row
from elmore.senses.induction import divide
from elmore.text.statistics import divergence, mean_distance
from elmore.text.tokenizer import Sentence

Floats = NDArray[np.float64]
_N_WORDS = 300


class JudgedWord(NamedTuple):
    """A word with its uses.

    Attributes:
        places: of the uses, (n,).
        late: which uses are of the second period, (n,).
        pairs: numbers of two uses, (n_pairs, 2).
        judged: the mean judgement of each pair, 1 to 4, (n_pairs,).
        clusters: the cluster of each use; -1 for none, (n,).
    """

    places: list[Place]
    late: NDArray[np.bool_]
    pairs: NDArray[np.int64]
    judged: Floats
    clusters: NDArray[np.int64]


class UsageGraph:
    """Compare similarity, groups and change with people's judgements.

    Args:
        elmo: a model that has a softmax.
        n_senses: how many groups; see `elmore.senses.induce`.
        limit: the first so many words only.
        seed: see `elmore.senses.induce`.
        progress: counts words.
    """

    def __init__(
        self,
        elmo: Elmo,
        *,
        n_senses: int | None = None,
        limit: int | None = None,
        seed: int = 0,
        progress: Progress = SILENT,
    ) -> None:
        self.elmo, self.n_senses = elmo, n_senses
        self.limit, self.seed, self.progress = limit, seed, progress
        self._space = SubstituteSpace(elmo, _N_WORDS)

    def run(self, data: str | Path) -> Report:
        """Measure on a folder."""
        folder = Path(data)
        words = sorted(path.parent for path in folder.glob("data/*/uses.csv"))[: self.limit]
        if not words:
            raise InputError(
                "there is no data/WORD/uses.csv; is it the right folder?", file=str(data)
            )
        rows: list[dict[str, float]] = []
        similar: list[Floats] = []
        judged: list[Floats] = []
        for path in words:
            word = read_word(folder, path.name)
            found = self._space.vectors(word.places)
            # What `Elmo.senses` keeps is best for pairs; groups want more words.
            ids, weights = found.ids[:, :N_WORDS], found.weights[:, :N_WORDS]
            few = SenseVectors(self._space, ids, weights, context=found.context)
            cosines = few.similarity()[word.pairs[:, 0], word.pairs[:, 1]].astype(np.float64)
            similar, judged = [*similar, cosines], [*judged, word.judged]
            vectors, late = unit(found.dense()), word.late
            old, new = vectors[~late], vectors[late]
            groups = divide(found, self.n_senses, self.seed).argmax(axis=1)
            known = word.clusters >= 0
            rows.append(
                {
                    "pairs": spearman(cosines, word.judged),
                    "adjusted Rand": rand_index(word.clusters[known], groups[known]),
                    "pairwise": mean_distance(old, new),
                    "prototype": 1 - float(unit(old.mean(axis=0)) @ unit(new.mean(axis=0))),
                    "divergence": _change(groups, late),
                    "graded change": _change(word.clusters[known], late[known]),
                }
            )
            self.progress.update(1)
        columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        metrics = {
            "pairs": spearman(np.concatenate(similar), np.concatenate(judged)),
            "pairs within words": float(columns["pairs"].mean()),
            "adjusted Rand": float(columns["adjusted Rand"].mean()),
            **{
                f"change by {name}": spearman(columns[name], columns["graded change"])
                for name in ("pairwise", "prototype", "divergence")
            },
        }
        metrics = {name: round(value, 4) for name, value in metrics.items()}
        table: list[Row] = [
            {"word": path.name, **{name: round(value, 3) for name, value in row.items()}}
            for path, row in zip(words, rows, strict=True)
        ]
        return Report(
            name="usage-graph",
            metrics=metrics,
            measured_on={
                "model": self.elmo.checkpoint.origin,
                "data": str(data),
                "words": len(rows),
                "judged pairs": sum(map(len, judged)),
                "seed": self.seed,
            },
            tables={
                "usage-graph": [{"measure": k, "value": v} for k, v in metrics.items()],
                "by word": table,
            },
            notes=["pairs and change: Spearman's correlation with people's judgements"],
        )


def read_word(folder: Path, name: str) -> JudgedWord:
    """Read the uses, judgements and clusters of a word.

    Raises:
        InputError: a file is missing, lacks a column, or a value is not what it should be.
    """
    try:
        return _read_word(folder, name)
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", file=error.filename) from None
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        where = str(folder / "data" / name)
        raise InputError(f"not a file of a usage graph ({error!r})", file=where) from None


def _read_word(folder: Path, name: str) -> JudgedWord:
    data = folder / "data" / name
    numbers: dict[str, int] = {}
    places: list[Place] = []
    late: list[bool] = []
    for row in _rows(data / "uses.csv"):
        tokens = tuple(row["context_tokenized"].split(" "))
        position = int(row["indexes_target_token_tokenized"])
        if not 0 <= position < len(tokens):
            raise InputError(f"'{row['identifier']}' has no token {position}", file=str(data))
        numbers[row["identifier"]] = len(places)
        places.append((Sentence(tokens), position))
        late.append(row["grouping"] != "1")
    judged: dict[tuple[int, int], list[float]] = defaultdict(list)
    for row in _rows(data / "judgments.csv"):
        one, two = sorted(numbers[row[f"identifier{k}"]] for k in (1, 2))
        if float(row["judgment"]) > 0 and one != two:  # 0: the annotator could not decide
            judged[one, two].append(float(row["judgment"]))
    clusters = np.full(len(places), -1)
    for row in _rows(folder / "clusters" / "opt" / f"{name}.csv"):
        clusters[numbers[row["identifier"]]] = int(row["cluster"])
    means = np.array([np.mean(values) for values in judged.values()], np.float64)
    return JudgedWord(
        places, np.array(late), np.array(list(judged), np.int64).reshape(-1, 2), means, clusters
    )


def _rows(path: Path) -> Iterator[Mapping[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        yield from csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)


def _change(groups: NDArray[np.int64], late: NDArray[np.bool_]) -> float:
    """The Jensen-Shannon distance of the shares of groups in both periods."""
    n = int(groups.max()) + 1
    shares = [np.bincount(groups[when], minlength=n) / when.sum() for when in (~late, late)]
    return float(divergence(*shares) ** 0.5)


def spearman(one: Sequence[float] | Floats, two: Sequence[float] | Floats) -> float:
    """Spearman's rank correlation; 0 if one of both is constant."""
    ranks = [_ranks(np.asarray(values, np.float64)) for values in (one, two)]
    centred = [values - values.mean() for values in ranks]
    product = float(np.linalg.norm(centred[0]) * np.linalg.norm(centred[1]))
    return float(centred[0] @ centred[1]) / product if product else 0.0


def _ranks(values: Floats) -> Floats:
    """Ranks from 0; equal values have their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts + 1) / 2)[inverse])
