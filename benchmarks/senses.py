"""What sense vectors and an index of uses cost, and what they are good for.

    python benchmarks/senses.py vectors --text news.txt
    python benchmarks/senses.py index --text corpus.txt --tokens 1_000_000
    python benchmarks/senses.py groups --data wsd/
    python benchmarks/senses.py change --text corpus.txt

*vectors*: homonyms, and positions per second compared with plain embedding. *index*: an index of
200 words and of all frequent words, compared with plain embedding, its size, and the time to open
and to search it; each in a process of its own, one thread. 20 M tokens take two to three hours:
`index --text wiki.txt --tokens 20_000_000 --min-count 100`. *groups*: how well the groups of
`Index.senses` agree with the senses of SemCor and of five test sets. *change*: made-up change.
Sense disambiguation is measured by `elmore analyze wsd`. Times are CPU seconds of one thread.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elmore import Elmo
from elmore.analysis.wsi import rand_index
from elmore.base.machine import peak_memory
from elmore.language_model.sense_vectors import SubstituteSpace, unit
from elmore.senses import Index, build_index, marked_place
from elmore.senses.induction import divide
from elmore.senses.parts import CANDIDATES
from elmore.text.reading import read_input
from elmore.text.statistics import pairwise_shift
from elmore.text.tokenizer import Sentence

HOMONYMS = Path(__file__).parents[1] / "tests/senses/homonyms.tsv"
Array = np.ndarray


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("vectors", "index", "many", "groups", "change"))
    parser.add_argument("--model", default="english", help="what Elmo.load takes")
    parser.add_argument("--text", nargs="+", default=[], help="one sentence per line")
    parser.add_argument("--data", type=Path, help="SemCor and the test sets, as in `analyze wsd`")
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--min-count", type=int, default=100)
    parser.add_argument("--max-uses", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--word", help="many: this word, not one of middling frequency")
    parser.add_argument("--words", type=int, default=200, help="groups: words of SemCor")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    result = index_child(args) if args.child else globals()[f"measure_{args.what}"](args)
    print(json.dumps(result, indent=None if args.child else 1))


def cpu(job: Callable[[], object]) -> float:
    start = time.process_time()
    job()
    return time.process_time() - start


def lines_of(files: Sequence[str], tokens: int) -> Iterator[str]:
    """Lines until there are so many words."""
    for file in files:
        for _, line in read_input(file):
            if tokens <= 0:
                return
            if line.strip():
                tokens -= len(line.split())
                yield line


# ------------------------------------------------------------------------------------ vectors


def measure_vectors(args: argparse.Namespace) -> dict[str, Any]:
    elmo = Elmo.load(args.model, threads=1)
    spaces = {
        "all": SubstituteSpace(elmo),
        "candidates": SubstituteSpace(elmo, candidates=CANDIDATES),
    }
    result: dict[str, Any] = {"homonyms": homonyms(elmo)}
    sentences = [elmo.tokenize(line) for line in lines_of(args.text, 20_000)]
    n_tokens = sum(map(len, sentences))
    chosen = [(one, range(0, len(one), 4)) for one in sentences]
    n_places = sum(len(positions) for _, positions in chosen)
    times: dict[str, list[float]] = defaultdict(list)
    for _ in range(args.rounds):
        for name, space in spaces.items():
            times[name].append(cpu(lambda s=space: [one.dense() for one in s.pipe(chosen)]))  # type: ignore[misc]
        times["embed"].append(
            cpu(lambda: list(elmo.pipe([one.tokens for one in sentences], tokenized=True)))
        )
    embed = min(times["embed"])
    result["embed tokens per second"] = round(n_tokens / embed)
    for name in spaces:
        # One place in four: the sentences are embedded too.
        result[f"places per second, {name}, with embedding"] = round(n_places / min(times[name]))
        extra = max(min(times[name]) - embed, 1e-9)
        result[f"places per second, {name}, beyond embedding"] = round(n_places / extra)
    return result


def homonyms(elmo: Elmo) -> dict[str, float]:
    """Per cent of uses whose nearest use of the same word has the same sense."""
    rows = [line.split("\t") for line in HOMONYMS.read_text(encoding="utf-8").splitlines()]
    words, senses = (np.array([row[k] for row in rows]) for k in (0, 1))
    places = [marked_place(elmo, row[2]) for row in rows]
    found = SubstituteSpace(elmo).vectors(places)
    layers = elmo.layers([sentence.tokens for sentence, _ in places], tokenized=True)
    views = {"sparse": found.similarity(), "dense": cosines(found.dense())}
    for layer in range(elmo.n_layers):
        pairs = zip(layers, places, strict=True)
        views[f"layer {layer}"] = cosines(np.stack([one.values[layer, k] for one, (_, k) in pairs]))
    other = (words[:, None] != words) | np.eye(len(words), dtype=bool)
    result = {}
    for name, view in views.items():
        nearest = np.where(other, -9, view).argmax(axis=1)
        result[name] = round(100 * float(np.mean(senses == senses[nearest])), 1)
    return result


def cosines(vectors: Array) -> Array:
    rows = unit(vectors)
    return rows @ rows.T


# ------------------------------------------------------------------------------------ index


def measure_index(args: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "text.txt")
        with text.open("w", encoding="utf-8") as stream:
            stream.writelines(f"{line}\n" for line in lines_of(args.text, args.tokens))
        result: dict[str, Any] = {}
        for job in ("plain", "200 words", "all words"):
            command = [sys.executable, __file__, "index", "--model", args.model]
            command += ["--min-count", str(args.min_count), "--max-uses", str(args.max_uses)]
            done = subprocess.run(
                [*command, "--child", job, str(text)], capture_output=True, text=True, check=True
            )
            result[job] = json.loads(done.stdout.splitlines()[-1])
            share = result["plain"]["seconds"] / result[job]["seconds"]
            result[job]["speed beside plain embedding"] = round(share, 2)
            print(job, result[job], file=sys.stderr, flush=True)
    return result


def index_child(args: argparse.Namespace) -> dict[str, Any]:
    job, text = args.child
    result: dict[str, Any] = {}
    if job == "plain":
        elmo = Elmo.load(args.model, threads=1)
        with open(text, encoding="utf-8") as stream:
            texts = (line.rstrip("\n") for line in stream)
            n_tokens = 0
            start = time.process_time()
            for vectors in elmo.pipe(texts):
                n_tokens += len(vectors)
            seconds = time.process_time() - start
        result["tokens"] = n_tokens
        result["tokens per second"] = round(n_tokens / seconds)
    else:
        words = None if job.startswith("all") else frequent(text)
        done = threading.Event()
        memory = threading.Thread(target=watch_memory, args=(done, result))
        memory.start()
        out, start = f"{text}-{job}", time.process_time()
        index = build_index(
            [text],
            out,
            model=args.model,
            words=words,
            min_count=args.min_count,
            max_uses=args.max_uses,
            threads=1,
        )
        seconds = time.process_time() - start
        done.set()
        memory.join()
        size = sum(path.stat().st_size for path in Path(out).iterdir())
        result |= {"words": len(index.words), "uses": len(index)}
        result["bytes per use"] = round(size / max(1, len(index)))
        result["uses per second"] = round(len(index) / seconds)
        result |= questions(out)
    peak = (peak_memory() or 0) / 1e6
    return {"seconds": round(seconds, 1), **result, "peak MB": round(peak)}


def watch_memory(done: threading.Event, result: dict[str, Any]) -> None:
    """Note the most memory of this process while it works, without pages of files (Linux)."""
    status, most = Path("/proc/self/status"), 0
    while status.exists() and not done.wait(0.2):
        line = next(line for line in status.read_text().splitlines() if "RssAnon" in line)
        most = max(most, int(line.split()[1]))
    result["peak MB of indexing, without files"] = round(most / 1024)


def frequent(text: str, n: int = 200) -> list[str]:
    """Words of middling frequency, which people would ask about."""
    counts: Counter[str] = Counter()
    with open(text, encoding="utf-8") as stream:
        for line in stream:
            counts.update(word for word in line.lower().split() if word.isalpha())
    return [word for word, _ in counts.most_common(200 + n)[200:]]


def questions(path: str) -> dict[str, float]:
    """Seconds to open an index, and to find uses of one word and of all words."""
    start = time.perf_counter()
    index = Index.open(path)
    result = {"open": time.perf_counter() - start}
    word = next(iter(index.words))
    index.find(f"It is the [{word}] .")  # the model is loaded once
    for name, pattern in (("find one word", None), ("find all words", "*")):
        result[name] = min(
            cpu(lambda p=pattern: index.find(f"It is the [{word}] .", word=p))  # type: ignore[misc]
            for _ in range(3)
        )
    return {name: round(value, 4) for name, value in result.items()}


# ------------------------------------------------------------------------------------ many


def measure_many(args: argparse.Namespace) -> dict[str, Any]:
    """Time and memory of the senses of a frequent word with up to 10,000 uses."""
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "text.txt")
        with text.open("w", encoding="utf-8") as stream:
            stream.writelines(f"{line}\n" for line in lines_of(args.text, args.tokens))
        path = Path(folder, "uses")
        word = frequent(str(text), 1)[0] if args.word is None else args.word
        build_index([text], path, model=args.model, words=[word], max_uses=10_000, threads=1)
        index = Index.open(path)
        before = peak_memory() or 0
        seconds = cpu(lambda: index.senses(word))
        more = (peak_memory() or 0) - before
        result = {"word": word, "uses": len(index), "senses": len(index.senses(word))}
        return {**result, "seconds": round(seconds, 2), "more peak MB": round(more / 1e6)}


# ------------------------------------------------------------------------------------ groups


def measure_groups(args: argparse.Namespace) -> dict[str, Any]:
    """Mean scores over words: SemCor's words of even number, and those of the test sets."""
    from elmore.analysis.wsd import read_wsd

    data = read_wsd(args.data)
    elmo = Elmo.load(args.model, threads=1)
    semcor = ambiguous([data.training], least=20)
    tests = ambiguous(list(data.tests.values()), least=10)
    # Settings were chosen on words of odd number.
    chosen = dict(list(semcor.items())[0::2][: args.words])
    return {
        "SemCor": score_groups(elmo, chosen),
        "five test sets": score_groups(elmo, tests),
    }


def ambiguous(
    texts: Sequence[Any], least: int, most: int = 100
) -> dict[str, list[tuple[Sentence, int, str]]]:
    """Words of one token with at least two senses that occur three times: their uses."""
    uses: dict[str, list[tuple[Sentence, int, str]]] = defaultdict(list)
    for text in texts:
        for one in text.instances:
            if one.end - one.start == 1:
                sentence = Sentence(tuple(text.sentences[one.sentence]))
                uses[one.lemma].append((sentence, one.start, one.senses[0]))
    draws = np.random.default_rng(0)
    result = {}
    for lemma in sorted(uses):
        some = [uses[lemma][k] for k in np.sort(draws.permutation(len(uses[lemma]))[:most])]
        senses = Counter(sense for *_, sense in some)
        if len(some) >= least and sum(n >= 3 for n in senses.values()) >= 2:
            result[lemma] = some
    return result


def score_groups(elmo: Elmo, words: dict[str, list[tuple[Sentence, int, str]]]) -> dict[str, Any]:
    places = [(sentence, position) for uses in words.values() for sentence, position, _ in uses]
    space = SubstituteSpace(elmo, 64)
    sparse = space.vectors(places)
    found = unit(sparse.dense())
    layers = [one.values for one in elmo.pipe((sentence for sentence, _ in places), layers="all")]
    views = [
        np.stack([one[k, p] for one, (_, p) in zip(layers, places, strict=True)])
        for k in range(elmo.n_layers)
    ]
    rows: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    stop = 0
    draws = np.random.default_rng(0)
    for uses in words.values():
        start, stop = stop, stop + len(uses)
        truth = np.unique([sense for *_, sense in uses], return_inverse=True)[1]
        n = int(truth.max()) + 1
        vectors = found[start:stop]
        groups = {
            "one group": np.zeros(len(uses), np.int64),
            "random groups, true number": draws.integers(n, size=len(uses)),
            "k-means, true number": k_groups(vectors, n),
            "found": divide(sparse[start:stop]).argmax(axis=1),
            "true number": divide(sparse[start:stop], n).argmax(axis=1),
        }
        for k, view in enumerate(views):
            groups[f"k-means, true number, layer {k}"] = k_groups(unit(view[start:stop]), n)
        for name, mine in groups.items():
            rows[name].append((*agreement(truth, mine), len(np.unique(mine))))
    names = ("adjusted Rand", "V-measure", "paired F", "groups")
    result: dict[str, Any] = {"words": len(words), "uses": len(places)}
    for name, values in rows.items():
        means = np.mean(values, axis=0)
        result[name] = {key: round(float(v), 3) for key, v in zip(names, means, strict=True)}
    return result


def k_groups(vectors: Array, k: int) -> Array:
    from sklearn.cluster import KMeans

    return KMeans(k, n_init=4, random_state=0).fit_predict(vectors)


def agreement(truth: Array, groups: Array) -> tuple[float, float, float]:
    """Adjusted Rand index, V-measure and paired F of two divisions."""
    from sklearn.metrics import v_measure_score
    from sklearn.metrics.cluster import pair_confusion_matrix

    groups = np.unique(groups, return_inverse=True)[1]
    (_, false), (missed, true) = pair_confusion_matrix(truth, groups)
    paired = 2 * true / max(2 * true + false + missed, 1)
    return rand_index(truth, groups), float(v_measure_score(truth, groups)), float(paired)


# ------------------------------------------------------------------------------------ change


def measure_change(args: argparse.Namespace) -> dict[str, Any]:
    """50 words get a share of uses of another word in one random half; 50 do not."""
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "text.txt")
        with text.open("w", encoding="utf-8") as stream:
            stream.writelines(f"{line}\n" for line in lines_of(args.text, args.tokens))
        options = {"min_count": args.min_count, "max_uses": 200, "threads": 1}
        index = build_index([text], Path(folder, "uses"), model=args.model, **options)
        draws = np.random.default_rng(0)
        words = list(
            draws.permutation([w for w in index.words if w.isalpha() and len(w) > 3])[:150]
        )
        result = {}
        for share in (0.5, 0.3, 0.1):
            scores: dict[str, list[float]] = {"pairwise": [], "prototype": []}
            p, changed = [], []
            for k in range(100):
                vectors = unit(index.vectors(draws.permutation(index.rows(words[k]))))
                old, new = vectors[::2], vectors[1::2].copy()
                if k < 50:
                    others = unit(index.vectors(draws.permutation(index.rows(words[100 + k]))))
                    n = min(len(others), int(share * len(new)))
                    new[:n] = others[:n]
                shift = pairwise_shift(old, new, 999, k)
                scores["pairwise"].append(shift.pairwise)
                means = unit(np.stack([old.mean(axis=0), new.mean(axis=0)]))
                scores["prototype"].append(float(1 - means[0] @ means[1]))
                p.append(shift.p)
                changed.append(k < 50)
            alarms = np.array(p) < 0.05
            precision = {}
            for name, values in scores.items():
                hits = np.array(changed)[np.argsort(-np.array(values))]
                parts = np.cumsum(hits) / np.arange(1, 101)
                precision[f"average precision, {name}"] = round(float(parts[hits].mean()), 3)
            result[f"{share:.0%} replaced"] = {
                **precision,
                "found": round(float(alarms[:50].mean()), 2),
                "false alarms": round(float(alarms[50:].mean()), 2),
            }
    return result


if __name__ == "__main__":
    main()
