"""scikit-learn: a transformer from text to vectors, for pipelines and searches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from elmore.base.optional import require
from elmore.embedding.inputs import check_listed
from elmore.integrations.loaded import load_once

require("sklearn", "sklearn", "elmore.integrations.sklearn")

from sklearn import get_config  # noqa: E402 (the line above says what to install)
from sklearn.base import (  # noqa: E402
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)

if TYPE_CHECKING:
    from elmore.config import ComputePrecision
    from elmore.elmo import Elmo
    from elmore.embedding.load import ModelPath
    from elmore.options import LayerChoice, Pooling, Start
    from elmore.text.segmenter import Tokenizer

Array = NDArray[np.float32]


class ElmoVectorizer(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]  # scikit-learn has no types
    TransformerMixin,  # type: ignore[misc]  # nor here
    BaseEstimator,  # type: ignore[misc]  # nor here
):
    """Turn sentences into vectors: one row per sentence, or per token.

    It learns nothing from the data: `fit` checks the parameters and loads the model, and
    `transform` works without it. It holds the model's name, not the model: copies and pickles are
    small, and every process loads it once.

    Args:
        model: a name, path or tuple of files, as in `Elmo.load`; the English model inside the
            package by default.
        pool: "mean", "max", "first", "last" or "sif", as in `Elmo.encode`; None for
            one row per token, those of the first sentence first (there must be as many labels).
        layers: "mean", "top", the number of a layer, or one weight per layer.
        tokenized: whether the input is lists of tokens, which are taken as they are.
        precision: "float32", "float16" or "int8"; by default the one the model was saved in.
        device: where to compute.
        threads: processors to use; all by default. Set 1 where several processes share a machine.
        start: the state before each sentence: "zeros" or "warm".
        batch_tokens: token budget of a batch.
        tokenizer: how raw text is split, as in `Elmo.load`. Use a function from a module, or
            "module:function", if the pipeline is to be pickled.

    Example:
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.pipeline import make_pipeline
        >>> pipeline = make_pipeline(ElmoVectorizer("my-model"), LogisticRegression())
        >>> _ = pipeline.fit(["It rose .", "It fell ."], [1, 0])
        >>> pipeline.predict(["It fell ."])
        array([0])
    """

    def __init__(
        self,
        model: ModelPath | None = None,
        *,
        pool: Pooling | None = "mean",
        layers: LayerChoice = "mean",
        tokenized: bool = False,
        precision: ComputePrecision | None = None,
        device: str = "cpu",
        threads: int | None = None,
        start: Start = "zeros",
        batch_tokens: int = 4096,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        # Stored unchecked: scikit-learn's `clone` compares them with the arguments.
        self.model = model
        self.pool = pool
        self.layers = layers
        self.tokenized = tokenized
        self.precision = precision
        self.device = device
        self.threads = threads
        self.start = start
        self.batch_tokens = batch_tokens
        self.tokenizer = tokenizer

    def fit(self, X: Iterable[Any], y: Any = None) -> ElmoVectorizer:
        """Check the parameters and load the model.

        Args:
            X: sentences, or lists of tokens; an iterator is not consumed.
            y: ignored.
        """
        check_listed(X, "sentences")
        self._pipe(())
        return self

    def transform(self, X: Iterable[Any]) -> Array:
        """Embed.

        Args:
            X: sentences, or lists of tokens: a list, an array, a column of a table, an iterator.

        Returns:
            (n sentences, dim), or (tokens of all sentences, dim) if `pool` is None; zeros for an
            empty sentence.
        """
        vectors = list(self._pipe(X))
        if not vectors:
            return np.zeros((0, self._n_features_out), np.float32)
        if self.pool is not None:
            return np.stack(vectors)
        rows: Array = self._token_rows(X, vectors)
        return rows

    def _token_rows(self, X: Any, vectors: list[Array]) -> Any:
        """Stack the tokens of all sentences."""
        rows = np.concatenate(vectors)
        chosen = getattr(self, "_sklearn_output_config", {}).get("transform")
        if (chosen or get_config()["transform_output"]) == "pandas" and hasattr(X, "iloc"):
            # scikit-learn would give the rows the index of X, which has one entry per sentence.
            index = X.index.repeat([len(part) for part in vectors])
            return require("pandas", "sklearn", "set_output").DataFrame(rows, index=index)
        return rows

    @property
    def _n_features_out(self) -> int:
        """Number of columns, for `get_feature_names_out`: elmovectorizer0, elmovectorizer1, ..."""
        return self._load().dim

    def _load(self) -> Elmo:
        return load_once(
            self.model,
            device=self.device,
            precision=self.precision,
            threads=self.threads,
            start=self.start,
            tokenizer=self.tokenizer,
        )

    def _pipe(self, items: Iterable[Any]) -> Iterator[Array]:
        return self._load().pipe(
            items,
            layers=self.layers,
            pool=self.pool,
            tokenized=self.tokenized,
            batch_tokens=self.batch_tokens,
            progress=False,  # as scikit-learn's own
        )

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.transformer_tags.preserves_dtype = []
        tags.requires_fit = False
        return tags
