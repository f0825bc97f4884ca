"""What a network sees of tokens: word vectors, spellings, layers of a biLM, and their indices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from elmore.base.messages import ProgressOption, progress_of, shown
from elmore.elmo import Elmo
from elmore.embedding.layer_cache import CachedLayers, LayerCache
from elmore.errors import ConfigError, FormatError
from elmore.limits import LIMITS
from elmore.nn.bilm import BiLm, TensorBatch
from elmore.nn.elmo_layer import ScalarMix
from elmore.tasks.folder import TrainedTask, word_rows
from elmore.tasks.recipe import CharactersRecipe, ElmoRecipe, TaskRecipe, WordsRecipe
from elmore.text.tokenizer import respell
from elmore.text.word_vectors import WordVectors
from elmore.training.seeds import numpy_generator

# Word vectors that are trained, (n, dim), and that stay, (m, dim); None for no words at all.
Vectors = tuple[NDArray[np.float32], NDArray[np.float32]] | None
# Texts of one or more sentences each.
Texts = Sequence[Sequence[Sequence[str]]]

# Deviation of vectors that start from nothing; GloVe's own entries are about four times as large.
_START = 0.1


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a batch as ids; time is at least 1, and there is at least one spelling."""

    lengths: Tensor  # tokens of each sentence, (batch,)
    mask: Tensor  # which places hold a token, (batch, time)
    words: Tensor  # rows of the word table, (batch, time); 0 is padding, 1 an unknown word
    spellings: Tensor  # bytes of the distinct words, (n_words, chars); 0 is padding
    spelled: Tensor  # which of them is where, (batch, time)
    layers: Tensor | None = None  # of the biLM, (layers, batch, time, dim), or None


class WordTable(nn.Module):
    """Word vectors: rows that are trained, then rows that stay, and one for unknown words.

    Row 0 is padding, row 1 the unknown word, which is always trained; the trained rows come
    first, so that an optimiser never sees the others.
    """

    fixed: Tensor

    def __init__(self, trained: Tensor, fixed: Tensor) -> None:
        super().__init__()
        self.unknown = nn.Parameter(torch.zeros(trained.shape[1]))
        self.trained = nn.Parameter(trained.clone()) if len(trained) else None
        self.n_trained, self.dim = trained.shape
        self.register_buffer("fixed", fixed.clone())

    def forward(self, ids: Tensor) -> Tensor:
        """Look words up, (batch, time) to (batch, time, dim); zeros at padding."""
        n, places = self.n_trained, ids - 2
        vectors = (ids == 1)[..., None] * self.unknown
        if len(self.fixed):
            known = places >= n
            rows = (places - n).clamp(min=0)
            vectors = vectors + nn.functional.embedding(rows, self.fixed) * known[..., None]
        if self.trained is not None:
            known = (places >= 0) & (places < n)
            rows = places.clamp(0, n - 1)
            vectors = vectors + nn.functional.embedding(rows, self.trained) * known[..., None]
        return vectors


class SpellingCnn(nn.Module):
    """A CNN over the bytes of a word: convolutions, ReLU, maximum over places."""

    def __init__(self, recipe: CharactersRecipe) -> None:
        super().__init__()
        self.bytes = nn.Embedding(257, recipe.dim, padding_idx=0)  # 256 bytes, shifted by one
        self.convolutions = nn.ModuleList(
            nn.Conv1d(recipe.dim, number, width) for width, number in recipe.filters
        )
        self.dropout = nn.Dropout(recipe.dropout)
        self.widest = max(width for width, _ in recipe.filters)
        self.dim = sum(number for _, number in recipe.filters)

    def forward(self, spellings: Tensor) -> Tensor:
        """Read words, (n_words, chars) to (n_words, dim)."""
        # Each window starts inside the word and may reach past its end, where it sees zeros:
        # so a word's features do not depend on the longest word of the batch.
        padded = nn.functional.pad(spellings, (0, self.widest - 1))
        x = self.dropout(self.bytes(padded)).transpose(1, 2)  # (n_words, dim, chars)
        inside = (spellings > 0)[:, None]
        chars = spellings.shape[1]
        return torch.cat(
            [
                (torch.relu(convolution(x)[:, :, :chars]) * inside).amax(2)
                for convolution in self.convolutions
            ],
            dim=1,
        )


class ElmoMixes(nn.Module):
    """The mixes of a biLM's layers that a task learns, one for each place where they enter.

    With layers="top" it is the last layer alone, which keeps its gamma; with "each" there are all
    layers side by side, (layers * dim) numbers per token without a mix. `bilm` is the biLM while
    it is trained with the task.
    """

    def __init__(self, n_layers: int, dim: int, recipe: ElmoRecipe) -> None:
        super().__init__()
        each = recipe.layers == "each"
        self.places = recipe.input + recipe.output
        self.dim = dim * n_layers if each else dim
        self.first = n_layers - 1 if recipe.layers == "top" else 0  # the first layer that is mixed
        self.mixes = nn.ModuleList(
            ScalarMix(n_layers - self.first, layer_norm=recipe.layer_norm)
            for _ in range(0 if each else self.places)
        )
        self.dropout = nn.Dropout(recipe.dropout)
        self.bilm: BiLm | None = None

    def forward(self, values: Tensor, mask: Tensor) -> list[Tensor]:
        """Mix (layers, batch, time, dim): (batch, time, dim) for each place; zeros at padding."""
        values, real = values[self.first :], mask[:, :, None]
        if not self.mixes:
            side_by_side = values.permute(1, 2, 0, 3).flatten(2) * real
            return [self.dropout(side_by_side) for _ in range(self.places)]
        return [self.dropout(mix(values, mask)) * real for mix in self.mixes]


class TokenFeatures(nn.Module):
    """The input of a task model: [word; spelling; ELMo], and ELMo for its output.

    The first mix belongs to the input if `elmo_input`, the last to the output if `elmo_output`.

    Raises:
        ConfigError: nothing goes in.
    """

    def __init__(self, recipe: TaskRecipe, elmo: Elmo | None, vectors: Vectors) -> None:
        super().__init__()
        self.words = self.spelling = self.elmo = None
        if vectors is not None:
            self.words = WordTable(*map(torch.from_numpy, vectors))
        if recipe.characters.filters:
            self.spelling = SpellingCnn(recipe.characters)
        if elmo is not None:
            self.elmo = ElmoMixes(elmo.n_layers, elmo.dim, recipe.elmo)
        self.elmo_input = self.elmo is not None and recipe.elmo.input
        self.elmo_output = self.elmo is not None and recipe.elmo.output
        elmo_dim = self.elmo.dim if self.elmo else 0
        self.own_dim = sum(part.dim for part in (self.words, self.spelling) if part)
        self.dim = self.own_dim + elmo_dim * self.elmo_input
        self.output_dim = elmo_dim * self.elmo_output
        if not (self.words or self.spelling or self.elmo_input):
            raise ConfigError(
                "the model has no input: neither words, characters nor ELMo; set words.dim or "
                "pass vectors"
            )

    def forward(self, tokens: Tokens) -> tuple[Tensor, Tensor]:
        """Input vectors (batch, time, dim) and ELMo for the output (batch, time, output_dim).

        Where no ELMo enters at the output, its vectors have no features.
        """
        parts, mixed, real = [], [], tokens.mask[:, :, None]
        if self.words is not None:
            parts.append(self.words(tokens.words))
        if self.spelling is not None:
            parts.append(self.spelling(tokens.spellings)[tokens.spelled] * real)
        if self.elmo is not None:
            mixed = self.elmo(tokens.layers, tokens.mask)
        if self.elmo_input:
            parts.append(mixed[0])
        above = mixed[-1] if self.elmo_output else real[:, :, :0].float()
        return torch.cat(parts, dim=2), above

    def penalty(self, strength: float) -> Tensor | float:
        """strength * ||w||^2 over all mixes (Peters et al. 2018, §3.3), ()."""
        if self.elmo is None or not self.elmo.mixes or not strength:
            return 0.0
        return torch.stack([mix.penalty(strength) for mix in self.elmo.mixes]).sum()  # type: ignore[operator]  # ModuleList forgets the class


class Network(nn.Module):
    """A task's network: token features, then what the task makes of them."""

    def __init__(self, features: TokenFeatures) -> None:
        super().__init__()
        self.features = features


# --------------------------------------------------------------------- from tokens to ids


def choose_words(
    counts: Counter[str], vectors: WordVectors | None, recipe: WordsRecipe, seed: int
) -> tuple[tuple[str, ...], Vectors]:
    """Choose the words of a table and the vectors that they start from.

    Words that a saved folder cannot hold are left out: they are unknown words from the start.
    """
    generator = numpy_generator(seed, "words")
    frequent = [w for w, n in sorted(counts.items()) if n >= recipe.min_count and _is_line(w)]

    def start(n_words: int, dim: int) -> NDArray[np.float32]:
        return generator.normal(0, _START, (n_words, dim)).astype(np.float32)

    if vectors is None:
        return tuple(frequent), (start(len(frequent), recipe.dim), start(0, recipe.dim))
    matrix = vectors.vectors
    if recipe.unit:
        norms = np.linalg.norm(matrix, axis=1, keepdims=True)
        matrix = matrix / np.maximum(norms, 1e-12)
    found = {row for word in counts if (row := vectors.row(word)) is not None}
    first = range(min(recipe.most, len(matrix)))
    kept = [row for row in sorted(found) if _is_line(vectors.words[row])]
    others = [row for row in first if row not in found and _is_line(vectors.words[row])]
    if not recipe.trainable:
        fixed = [*kept, *others]
        words = tuple(vectors.words[row] for row in fixed)
        return words, (start(0, vectors.dim), matrix[fixed])
    # Trained rows come first in the table: found in the file, then those that start from nothing.
    own = [word for word in frequent if vectors.row(word) is None]
    words = (*(vectors.words[row] for row in kept), *own, *(vectors.words[r] for r in others))
    trained = np.concatenate([matrix[kept], start(len(own), vectors.dim)])
    return words, (trained, matrix[others])


def _is_line(word: str) -> bool:
    """Whether a word that is written as a line of UTF-8 is read back as it was."""
    try:
        size = len(word.encode("utf-8"))
    except UnicodeEncodeError:  # a lone surrogate, which JSON can spell
        return False
    same = "\n" not in word and not word.endswith("\r") and not word.startswith("\ufeff")
    return same and size <= LIMITS.vocabulary_line_bytes


class BiLmLayers:
    """All layers of sentences, from the disk cache, or of `bilm` while it is trained.

    `bilm` is a copy of the cache's biLM, whose layers are computed in each step.
    """

    def __init__(self, cache: LayerCache, bilm: BiLm | None = None) -> None:
        self.cache, self.bilm = cache, bilm
        self._places: dict[tuple[str, ...], tuple[CachedLayers, int]] = {}

    def announce(
        self, sentences: Iterable[Sequence[str]], progress: ProgressOption = False
    ) -> None:
        """Compute what is not there yet."""
        new = list({tuple(s): None for s in sentences if tuple(s) not in self._places})
        if new:
            # The biLM knows quotes only as its training text spelled them.
            convention = self.cache.elmo.checkpoint.tokenizer
            read = [respell(tokens, convention) for tokens in new]
            with closing(progress_of(progress, unit="sentences", total=len(new))) as report:
                layers = self.cache.layers(read, progress=report)
            self._places.update({tokens: (layers, k) for k, tokens in enumerate(new)})

    def batch(self, texts: Texts, time: int) -> Tensor:
        """The layers of texts, (layers, batch, time, dim); zeros at padding."""
        elmo = self.cache.elmo
        parts = iter(self._stored(texts) if self.bilm is None else self._live(self.bilm, texts))
        nothing = torch.zeros(elmo.n_layers, time, elmo.dim)
        rows = []
        for text in texts:
            found = [next(parts)[:, : len(tokens)] for tokens in text]
            n_padding = time - sum(map(len, text))
            rows.append(torch.cat([*found, nothing[:, :n_padding].to(self._device)], dim=1))
        return torch.stack(rows, dim=1)

    @property
    def _device(self) -> torch.device | str:
        return "cpu" if self.bilm is None else next(self.bilm.parameters()).device

    def _stored(self, texts: Texts) -> Iterator[Tensor]:
        """The layers of each part from the cache, (layers, tokens, dim)."""
        self.announce(tokens for text in texts for tokens in text)
        for tokens in (tokens for text in texts for tokens in text):
            layers, place = self._places[tuple(tokens)]
            yield torch.from_numpy(layers[place])

    def _live(self, bilm: BiLm, texts: Texts) -> Iterator[Tensor]:
        """The same from the biLM in training; what is behind a part's tokens means nothing."""
        elmo = self.cache.elmo
        read = [respell(part, elmo.checkpoint.tokenizer) for text in texts for part in text]
        if not any(read):
            yield from torch.zeros(len(read), elmo.n_layers, 0, elmo.dim, device=self._device)
            return
        batch = TensorBatch.from_batch(elmo.engine.indexer.batch(read), self._device)
        layers, _ = bilm(batch.words, batch.index, batch.lengths, word_ids=batch.word_ids)
        yield from layers[:, :, 1:-1].unbind(1)  # without those of the sentence markers


class TokenIndex:
    """Turns token lists into `Tokens`; of each word at most `max_chars` bytes are read."""

    def __init__(self, words: Sequence[str], max_chars: int, device: str = "cpu") -> None:
        self._row = word_rows(words)
        self._max_chars, self._device = max_chars, device
        self.layers: BiLmLayers | None = None

    def batch(self, sentences: Sequence[Sequence[str]], parts: Texts | None = None) -> Tokens:
        """Index sentences, or texts of which the biLM reads `parts` one by one."""
        lengths = np.array([len(tokens) for tokens in sentences], np.int64)
        # Without any token there is one column of padding, so that no axis is empty.
        time = int(lengths.max(initial=1))
        words = np.zeros((len(sentences), time), np.int64)
        spelled = np.zeros((len(sentences), time), np.int64)
        distinct: dict[str, int] = {}  # the CNN reads each word of a batch once
        for row, tokens in enumerate(sentences):
            for place, token in enumerate(tokens):
                words[row, place] = self._row(token)
                spelled[row, place] = distinct.setdefault(token, len(distinct))

        def tensor(array: NDArray[np.int64]) -> Tensor:
            return torch.from_numpy(array).to(self._device)

        layers = None
        if self.layers is not None:
            texts = [[tokens] for tokens in sentences] if parts is None else parts
            layers = self.layers.batch(texts, time).to(self._device)
        counts = tensor(lengths)
        return Tokens(
            lengths=counts,
            mask=torch.arange(time, device=self._device) < counts[:, None],
            words=tensor(words),
            spellings=tensor(self._spell(list(distinct))),
            spelled=tensor(spelled),
            layers=layers,
        )

    def _spell(self, words: Sequence[str]) -> NDArray[np.int64]:
        """The bytes of words, shifted by one because 0 is padding, (n_words, chars)."""
        raw = [word.encode("utf-8", "surrogatepass")[: self._max_chars] for word in words or ("",)]
        spellings = np.zeros((len(raw), max(1, *map(len, raw))), np.int64)
        for row, data in enumerate(raw):
            spellings[row, : len(data)] = np.frombuffer(data, np.uint8).astype(np.int64) + 1
        return spellings


# --------------------------------------------------------------------- from a saved folder


def stored_vectors(content: TrainedTask, what: str) -> Vectors:
    """The word vectors of a saved task."""
    if content.words is None:
        return None
    fixed = content.weights.get("features.words.fixed", np.zeros(0))
    none = np.zeros((0, *fixed.shape[1:]), np.float32)
    trained = content.weights.get("features.words.trained", none)
    if {trained.ndim, fixed.ndim} != {2} or len(trained) + len(fixed) != len(content.words):
        raise FormatError(
            f"'{what}' has {len(content.words)} words, but vectors of shapes {trained.shape} and "
            f"{fixed.shape}; restore it"
        )
    return trained.astype(np.float32, copy=False), fixed.astype(np.float32, copy=False)


class _Unfilled(TorchFunctionMode):
    """Skips random numbers: for tensors without memory they would import half of torch."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.__name__ == "normal_":
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)


def stored_network(
    build: Callable[[], Network], weights: Mapping[str, NDArray[Any]], what: str
) -> Network:
    """The network that `build` makes, with saved weights.

    Raises:
        FormatError: their names and shapes are not those of the network.
    """
    filled = {name: torch.tensor(w, dtype=torch.float32) for name, w in weights.items()}
    try:
        # A hostile recipe may ask for terabytes: on the meta device nothing is allocated.
        with torch.device("meta"), _Unfilled():
            network = build()
        network.load_state_dict(filled, assign=True)
    except RuntimeError as error:  # other names or shapes, or sizes beyond what torch can count
        problem = " ".join(str(error).split())
        raise FormatError(
            f"'{what}' does not fit its recipe: {shown(problem, 120)}; restore it"
        ) from None
    return network.eval()
