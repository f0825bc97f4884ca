"""Word senses by nearest neighbours in each layer (paper §5.3, Table 5).

The vector of an instance is the mean over its tokens. Candidates are the senses of the same lemma
and part of speech seen in the training corpus: by their average vector, by the one instance that
is nearest, or by a vote of the 15 nearest (all by cosine; ties go to the order of the dictionary).
A lemma never seen takes its first sense. Every instance is answered, so that F1 is accuracy. A
model with a softmax is measured by its sense vectors too (`elmore.senses`), alone and joined with
the states of both directions before they read the word.

The data (Raganato et al. 2017) is a folder with one training corpus and any number of test sets,
JSON lines `{"tok": [...], "inst": [[start, end, lemma, pos, ...], ...]}`, and the inventory, lines
`lemma#pos <TAB> senses <TAB> ...` in the order of the dictionary. Files may be compressed.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmore.analysis.probe import LayerProbe, Views, percent
from elmore.elmo import Elmo
from elmore.embedding.results import layer_weights, unit
from elmore.errors import ConfigError, InputError
from elmore.language_model.sense_vectors import SenseVectors, SubstituteSpace
from elmore.report import Report, Row, Value
from elmore.text.reading import json_records, numbered_lines
from elmore.text.tokenizer import Sentence
from elmore.text.word_vectors import WordVectors

_TRAINING = "semcor"
# The order of the literature; other sets follow by name.
_SETS = ("senseval2", "senseval3", "semeval2007", "semeval2013", "semeval2015")
_TEXT = (".jsonl", ".jsonl.xz", ".jsonl.gz", ".jsonl.bz2")
_ORDER = ("_order.tsv", "_order.tsv.xz", "_order.tsv.gz", "_order.tsv.bz2")
# The development set of Raganato et al.; the paper's figures are without it.
_DEVELOPMENT = "semeval2007"
_FIRST, _FREQUENT, _STATIC = "first sense", "most frequent sense", "static vectors"
# The number of votes was chosen on SemCor, where uses of other documents were asked for the sense
# of 21,800 uses: sense vectors gave 71.2 per cent with 7 votes, 71.5 with 15 and 71.4 with 25.
_VOTES = 15
_METHODS = ("sense averages", "nearest instance", f"{_VOTES} nearest")
_SENSE_VECTORS, _JOINED = "sense vectors", "sense vectors and context"
# Weight of the cosine of the contexts, compared with that of the sense vectors. Chosen like the
# votes: 0.2, 0.3, 0.4 and 1 gave 71.8, 72.0, 72.0 and 71.8 per cent.
_CONTEXT = 0.4
# The last letter of a lemma#pos, in WordNet's order.
_PARTS = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}
# Cosines that differ by less are ties: equal words have equal vectors in layer 0.
_DIGITS = 6
# Gives the vectors of tokens by sentence and position, (n, layers, dim).
Tokens = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float32]]
# Gives the vectors of a lemma's training and test instances, (n, layers, dim) and (m, layers, dim).
Vectors = Callable[[str], tuple[NDArray[np.float32], NDArray[np.float32]]]
# Vectors and method, and whether each test instance is answered rightly, (n_instances,).
Answer = tuple[tuple[str, str | None], NDArray[np.bool_]]


@dataclass(frozen=True, slots=True)
class Instance:
    """A word to disambiguate.

    Attributes:
        sentence: its number in the text.
        start: first token.
        end: token after the last.
        lemma: lemma#pos, in lower case.
        senses: the right ones; there may be several.
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


@dataclass(eq=False, kw_only=True)
class Wsd(LayerProbe):
    """Nearest-neighbour disambiguation; the arguments are those of `LayerProbe`.

    Examples:
        >>> f1 = Wsd(elmo).run("wsd/").metrics["ALL layer 2, sense averages"]
    """

    def run(self, data: str | Path) -> Report:
        """Disambiguate all test sets.

        Args:
            data: a folder with training corpus, test sets and inventory (see above).
        """
        static = self.static_vectors()
        texts = read_wsd(Path(data), limit=self.limit)
        scorer = _Scorer(texts)
        answers: list[Answer] = [
            ((_FIRST, None), scorer.first_sense()),
            ((_FREQUENT, None), scorer.frequent_sense()),
        ]
        # One text for all sets, in the order of the scorer's instances.
        asked = [s for text in texts.tests.values() for s in text.sentences]
        if static is not None:
            known = _static_tokens(static, texts.training.sentences)
            spans = scorer.spans(known, _static_tokens(static, asked))
            answers += scorer.nearest(spans, [(_STATIC, 0)])
        for prefix, cache in self.caches():
            learned = cache.layers(texts.training.sentences, progress=self.progress)
            tests = cache.layers(asked, progress=self.progress)
            views = [(prefix + name, view) for name, view in self.views]
            answers += scorer.nearest(scorer.spans(learned.tokens, tests.tokens), views)
        if self.elmo.checkpoint.softmax is not None:
            alone, joined = scorer.sense_vectors(self.elmo, texts.training.sentences, asked)
            answers += scorer.nearest(alone, [(_SENSE_VECTORS, 0)])
            answers += scorer.nearest(joined, [(_JOINED, 0)])
        rows = [scorer.row(*answer) for answer in answers]
        return Report(
            name="wsd",
            metrics={
                f"{column} {_label(row)}": float(value)
                for row in rows
                for column, value in row.items()
                if column.startswith("ALL") and isinstance(value, int | float)
            },
            measured_on={
                "model": self.elmo.checkpoint.origin,
                "data": str(data),
                "training sentences": len(texts.training.sentences),
                "limit": self.limit,
                "instances": [
                    f"{name} {len(text.instances)}" for name, text in texts.tests.items()
                ],
                "choices": int(scorer.choice.sum()),
                "parts of speech": [f"{part} {n.sum()}" for part, n in scorer.parts.items()],
            },
            tables={
                "wsd": rows,
                "ALL by part of speech": [scorer.parts_row(*answer) for answer in answers],
            },
            notes=[
                "F1 in per cent; choices: accuracy on instances of ALL whose lemma was seen with "
                "two or more senses",
                "much of the score by nearest instance is the frequency of senses: compare it "
                "with the random weights",
            ],
        )


def read_wsd(folder: Path, *, limit: int | None = None) -> WsdData:
    """Read a folder; of the training corpus, only the first `limit` sentences."""
    if not folder.is_dir():
        raise ConfigError(f"'{folder}' is not a folder; wsd takes the folder with its files")
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
    # Most training instances are of lemmas that nobody asks for: they need no vectors.
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

    def parse(record: Any) -> tuple[tuple[str, ...], list[Instance]]:
        tokens = tuple(record["tok"])
        found = [_instance(len(sentences), item, tokens, test) for item in record["inst"]]
        if not all(isinstance(token, str) for token in tokens):
            raise ValueError("a token is not a text")
        return tokens, found

    error = "not a sentence with senses ({reason}); correct the line"
    records = itertools.islice(json_records(path, parse, error), limit)
    for number, (tokens, found) in records:
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
    # Test sets give complete keys in another column; the training corpus leaves the lemma out.
    keys = item[5].split(" ") if test else [f"{lemma}%{tail}" for tail in item[4].split(" ")]
    return Instance(sentence, start, end, f"{lemma}#{pos}", tuple(keys))


class _Scorer:
    """The test instances of all sets in one list, and what is known without vectors."""

    def __init__(self, texts: WsdData) -> None:
        self._senses = texts.senses
        self.instances: list[Instance] = []
        self.sets: dict[str, slice] = {}
        offset = 0
        for name, text in texts.tests.items():
            start = len(self.instances)
            for one in text.instances:
                moved = Instance(one.sentence + offset, one.start, one.end, one.lemma, one.senses)
                self.instances.append(moved)
            offset += len(text.sentences)
            self.sets[name] = slice(start, len(self.instances))
        self.places: dict[str, list[int]] = defaultdict(list)
        for place, instance in enumerate(self.instances):
            self.places[instance.lemma].append(place)
        self.seen: dict[str, list[Instance]] = defaultdict(list)
        for instance in texts.training.instances:
            self.seen[instance.lemma].append(instance)
        several = {lemma for lemma in self.seen if len(self.candidates(lemma)) > 1}
        self.choice = np.array([instance.lemma in several for instance in self.instances])
        letters = np.array([instance.lemma.rpartition("#")[2] for instance in self.instances])
        self.parts = {name: letters == letter for letter, name in _PARTS.items()}

    def candidates(self, lemma: str) -> list[str]:
        """The senses of a lemma that were seen, in the order of the dictionary."""
        order = {key: rank for rank, key in enumerate(self._senses[lemma])}
        keys = {key for instance in self.seen.get(lemma, ()) for key in instance.senses}
        return sorted(keys, key=lambda key: (order.get(key, len(order)), key))

    def first_sense(self) -> NDArray[np.bool_]:
        """Answer by the dictionary alone."""
        return np.array([self._senses[one.lemma][0] in one.senses for one in self.instances])

    def frequent_sense(self) -> NDArray[np.bool_]:
        """Answer by the sense seen most often, ties and unseen lemmas by the dictionary."""
        usual = {}
        for lemma in self.places:
            counts = Counter(key for one in self.seen.get(lemma, ()) for key in one.senses)
            usual[lemma] = max(self._senses[lemma], key=lambda key, c=counts: c[key])  # type: ignore[misc]  # mypy cannot infer a default
        return np.array([usual[one.lemma] in one.senses for one in self.instances])

    def spans(self, known: Tokens, asked: Tokens) -> Vectors:
        """Vectors by tokens of the training corpus, and of the test sets one after the other."""

        def vectors(lemma: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
            return _spans(known, self.seen[lemma]), _spans(asked, self.asked(lemma))

        return vectors

    def sense_vectors(
        self, elmo: Elmo, known: Sequence[Sequence[str]], asked: Sequence[Sequence[str]]
    ) -> tuple[Vectors, Vectors]:
        """Vectors by likely substitutes, alone and joined with the states of both directions.

        Args:
            elmo: a model that has a softmax.
            known: the sentences of the training instances.
            asked: the sentences of the test instances.
        """
        places: dict[tuple[bool, int], list[tuple[int, int]]] = defaultdict(list)
        rows: dict[str, list[list[tuple[bool, int, int]]]] = {}
        for lemma in self.places:
            rows[lemma] = []
            for test, instances in enumerate((self.seen.get(lemma, []), self.asked(lemma))):
                mine = []
                for one in instances:
                    spans = places[bool(test), one.sentence]
                    mine.append((bool(test), one.sentence, len(spans)))
                    spans.append((one.start, one.end - 1))
                rows[lemma].append(mine)
        texts = {False: known, True: asked}
        space = SubstituteSpace(elmo)
        stream = space.pipe(
            (Sentence(tuple(texts[test][number])), spans)
            for (test, number), spans in places.items()
        )
        found = dict(zip(places, stream, strict=True))

        def tables(lemma: str) -> tuple[NDArray[np.float32], NDArray[np.float32], int]:
            """Words and states of each instance, (n, words) and (n, dim); how many are known."""
            mine = [
                (found[test, number], row) for part in rows[lemma] for test, number, row in part
            ]
            vectors = SenseVectors(
                space,
                np.stack([part.ids[row] for part, row in mine]),
                np.stack([part.weights[row] for part, row in mine]),
            ).folded()
            table = vectors.table(np.unique(vectors.ids))
            states = np.stack([part.context[row] for part, row in mine if part.context is not None])
            return table, states, len(rows[lemma][0])

        def alone(lemma: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
            words, _, n_known = tables(lemma)
            return words[:n_known, None], words[n_known:, None]

        def joined(lemma: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
            words, states, n_known = tables(lemma)
            states -= states[:n_known].mean(axis=0)  # what all uses of the lemma share
            both = np.hstack([words, _CONTEXT**0.5 * unit(states)]).astype(np.float32)
            return both[:n_known, None], both[n_known:, None]

        return alone, joined

    def asked(self, lemma: str) -> list[Instance]:
        """The test instances of a lemma."""
        return [self.instances[place] for place in self.places[lemma]]

    def nearest(self, vectors: Vectors, views: Views) -> Iterator[Answer]:
        """Answer every test instance by each view and method.

        Yields:
            (view, method) and whether each answer is right, (n_instances,).
        """
        right: dict[tuple[str, str | None], NDArray[np.bool_]] = {
            (name, method): self.first_sense() for name, _ in views for method in _METHODS
        }
        for lemma, places in self.places.items():
            seen = self.seen.get(lemma)
            if not seen:
                continue  # the first sense it is
            candidates = self.candidates(lemma)
            chosen = _choose(
                *vectors(lemma),
                [[candidates.index(key) for key in instance.senses] for instance in seen],
                len(candidates),
                views,
            )
            for name, method, senses in chosen:
                for place, sense in zip(places, senses, strict=True):
                    gold = self.instances[place].senses
                    right[name, method][place] = candidates[sense] in gold
        yield from right.items()

    def row(self, how: tuple[str, str | None], right: NDArray[np.bool_]) -> Row:
        """Score answers on every set and on all."""
        row: dict[str, Value] = dict(zip(("vectors", "method"), how, strict=True))
        row |= {name: percent(right[place]) for name, place in self.sets.items()}
        row["ALL"] = percent(right)
        if _DEVELOPMENT in self.sets and len(self.sets) > 1:
            others = np.ones(len(right), bool)
            others[self.sets[_DEVELOPMENT]] = False
            row[f"ALL but {_DEVELOPMENT}"] = percent(right[others])
        row["choices"] = percent(right[self.choice])
        return row

    def parts_row(self, how: tuple[str, str | None], right: NDArray[np.bool_]) -> Row:
        """Score answers on the nouns, verbs, adjectives and adverbs of all sets."""
        scores = {name: percent(right[here]) for name, here in self.parts.items()}
        return {**dict(zip(("vectors", "method"), how, strict=True)), **scores}


def _label(row: Row) -> str:
    return str(row["vectors"]) if row["method"] is None else f"{row['vectors']}, {row['method']}"


def _static_tokens(vectors: WordVectors, sentences: Sequence[Sequence[str]]) -> Tokens:
    def tokens(numbers: NDArray[np.int64], positions: NDArray[np.int64]) -> NDArray[np.float32]:
        words = [sentences[s][t] for s, t in zip(numbers, positions, strict=True)]
        return vectors.take(words)[:, None]

    return tokens


def _spans(tokens_at: Tokens, instances: Sequence[Instance]) -> NDArray[np.float32]:
    """The mean over the tokens of each instance, (n, layers, dim)."""
    lengths = np.array([one.end - one.start for one in instances])
    starts = np.cumsum(lengths) - lengths
    sentences = np.repeat([one.sentence for one in instances], lengths)
    inside = np.arange(len(sentences)) - np.repeat(starts, lengths)
    positions = np.repeat([one.start for one in instances], lengths) + inside
    tokens = tokens_at(sentences, positions)
    if len(tokens) == len(instances):
        return tokens
    sums = np.add.reduceat(tokens, starts, axis=0)
    return np.asarray(sums / lengths[:, None, None].astype(np.float32))


def _choose(
    seen: NDArray[np.float32],
    asked: NDArray[np.float32],
    senses: Sequence[Sequence[int]],
    n_senses: int,
    views: Views,
) -> Iterator[tuple[str, str, NDArray[np.int64]]]:
    """Choose a sense for each instance of one lemma.

    Args:
        seen: training instances, (n, layers, dim).
        asked: test instances, (m, layers, dim).
        senses: numbers of the senses of each training instance.
        n_senses: how many senses were seen.
        views: the layers to go by.

    Yields:
        name of the view, method, and the chosen senses, (m,).
    """
    ranks = np.array([min(mine) for mine in senses])
    order = np.argsort(ranks, kind="stable")  # among equally near instances the first sense wins
    member = np.zeros((n_senses, len(senses)))
    for place, mine in enumerate(senses):
        member[list(mine), place] = 1
    votes = member.T[order]
    # Rows become averages over the instances of a sense; the votes above count each of them once.
    member /= member.sum(1, keepdims=True)
    for name, view in views:
        weights = layer_weights(view, seen.shape[1]).astype(np.float64)
        known = np.einsum("l,nld->nd", weights, seen)
        queries = unit(np.einsum("l,nld->nd", weights, asked))
        near = np.round(queries @ unit(member @ known).T, _DIGITS)
        yield name, _METHODS[0], near.argmax(1)
        near = np.round(queries @ unit(known[order]).T, _DIGITS)
        yield name, _METHODS[1], ranks[order[near.argmax(1)]]
        best = np.argsort(-near, axis=1, kind="stable")[:, :_VOTES]
        cosines = np.maximum(np.take_along_axis(near, best, axis=1), 0)
        # Where no instance is similar, the nearest decides.
        cosines[:, 0] = np.maximum(cosines[:, 0], 1e-9)
        yield name, _METHODS[2], np.einsum("mk,mks->ms", cosines, votes[best]).argmax(1)
