"""Sentiment of SST with scikit-learn, ELMo and TF-IDF: `python examples/sst_sklearn.py DATA`.

DATA holds train.txt.xz, dev.txt.xz and test.txt.xz of the Stanford Sentiment Treebank, plain or
compressed. Each classifier's strength of regularisation is the one that does best on dev.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

from elmore.integrations.sklearn import ElmoVectorizer
from elmore.tasks.paper.sentiment import read_trees

STRENGTHS = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0]


def read(path: Path, *, binary: bool) -> tuple[list[list[str]], np.ndarray]:
    """Read sentences and labels: all five, or negative and positive without neutral."""
    name = next(file for file in sorted(path.parent.glob(f"{path.name}*")))
    rows = [phrases[0] for phrases in read_trees(name)]
    if binary:
        rows = [(tokens, int(label > 2)) for tokens, label in rows if label != 2]
    return [list(tokens) for tokens, _ in rows], np.array([label for _, label in rows])


def as_they_are(tokens: list[str]) -> list[str]:
    """Give tokens that are tokens already."""
    return tokens


def features(threads: int | None) -> dict[str, object]:
    """What turns sentences into numbers."""
    tfidf = TfidfVectorizer(analyzer=as_they_are)
    elmo = ElmoVectorizer(tokenized=True, threads=threads)
    return {
        "TF-IDF": tfidf,
        "ELMo, mean of tokens": make_pipeline(elmo, StandardScaler()),
        "ELMo, largest of tokens": make_pipeline(
            clone(elmo).set_params(pool="max"), StandardScaler()
        ),
        "ELMo, sif": make_pipeline(clone(elmo).set_params(pool="sif"), StandardScaler()),
        "ELMo (mean) and TF-IDF": make_union(
            make_pipeline(clone(elmo), StandardScaler()), make_pipeline(tfidf, MaxAbsScaler())
        ),
    }


def main(folder: str, threads: int | None = None) -> None:
    """Print a table of accuracies."""
    print(f"{'features':<26}{'classes':>8}{'C':>8}{'dev':>8}{'test':>8}{'seconds':>9}")
    for binary in (True, False):
        parts = {name: read(Path(folder, name), binary=binary) for name in ("train", "dev", "test")}
        for name, extractor in features(threads).items():
            started = time.perf_counter()
            matrices = {"train": extractor.fit_transform(*parts["train"])}
            matrices |= {part: extractor.transform(parts[part][0]) for part in ("dev", "test")}
            models = [
                LogisticRegression(C=strength, max_iter=2000).fit(
                    matrices["train"], parts["train"][1]
                )
                for strength in STRENGTHS
            ]
            scores = [model.score(matrices["dev"], parts["dev"][1]) for model in models]
            best = int(np.argmax(scores))  # the test set has no say in it
            dev, strength = scores[best], STRENGTHS[best]
            test = models[best].score(matrices["test"], parts["test"][1])
            seconds = time.perf_counter() - started
            classes = 2 if binary else 5
            print(
                f"{name:<26}{classes:>8}{strength:>8}{dev:>8.3f}{test:>8.3f}{seconds:>9.0f}",
                flush=True,
            )


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None)
