"""Join the parts of an index into its arrays, and divide an index into parts again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmore.base.atomic import write_error
from elmore.senses.files import IndexFiles
from elmore.senses.parts import draw, part_name, write_part

# Bytes that are written at once.
_BLOCK = 1 << 20
# Sentences of an index that become one part.
_PART_SENTENCES = 4096


def join_parts(parts: Sequence[Path], folder: Path, kinds: Mapping[str, np.dtype[Any]]) -> None:
    """Write the arrays of an index, with the uses sorted by word.

    Args:
        parts: in the order of the text.
        folder: where to write.
        kinds: the types of the arrays; see `array_types`.
    """
    sizes, counts, n_uses = Counter[str](), [], np.zeros(0, np.int64)
    for path in parts:
        with np.load(path) as part:
            more = np.bincount(part["words"], minlength=len(n_uses))
            more[: len(n_uses)] += n_uses
            n_uses = more
            counts.append(part["count"])
            sizes.update({name: len(part[name]) for name in ("sentences", "text")})
    offsets, count = np.concatenate([[0], np.cumsum(n_uses)]), _summed(np.concatenate(counts))
    sizes.update(uses=int(offsets[-1]), vectors=int(offsets[-1]))
    sizes.update(offsets=len(offsets), count=len(count))
    out = {n: _reserved(folder / f"{n}.npy", kind, sizes[n]) for n, kind in kinds.items()}
    out["offsets"][:], out["count"][:] = offsets, count
    free = offsets[:-1].copy()  # the first free row of each word
    n_sentences = n_bytes = 0
    for path in parts:
        with np.load(path) as part:
            order = np.argsort(part["words"], kind="stable")
            words = part["words"][order]
            # The uses of a word in this part are next to each other, from `first` on.
            first = np.searchsorted(words, words)
            rows = free[words] + np.arange(len(words)) - first
            np.add.at(free, words, 1)
            uses, sentences, text = part["uses"], part["sentences"], part["text"]
            uses["sentence"] += n_sentences
            sentences["end"] += n_bytes
            out["uses"][rows], out["vectors"][rows] = uses[order], part["vectors"][order]
            out["sentences"][n_sentences : n_sentences + len(sentences)] = sentences
            out["text"][n_bytes : n_bytes + len(text)] = text
            n_sentences, n_bytes = n_sentences + len(sentences), n_bytes + len(text)
    for array in out.values():
        array.flush()


def divide(base: IndexFiles, folder: Path, limits: Mapping[str, tuple[int, int]]) -> list[Path]:
    """Write the uses of an index as parts of another one.

    Args:
        base: the index.
        folder: where to write.
        limits: of the other index, for all words of this one; see `Plan.limits`.

    Returns:
        the parts, in the order of the text.
    """
    arrays, sizes = base.arrays, np.diff(base.arrays["offsets"])
    numbers = np.array([limits[word][0] for word in base.words], np.int32)
    most = np.array([limits[word][1] - 1 for word in base.words], np.uint64)
    words, ends = np.repeat(numbers, sizes), arrays["sentences"]["end"]
    rows = np.flatnonzero(_draws(base) <= np.repeat(most, sizes))
    rows = rows[np.argsort(arrays["uses"]["sentence"][rows], kind="stable")]
    sentences, count = arrays["uses"]["sentence"][rows], np.array(arrays["count"])
    count["word"] = numbers[count["word"]]
    parts: list[Path] = []
    for first in range(0, len(ends), _PART_SENTENCES):
        mine = rows[slice(*np.searchsorted(sentences, (first, first + _PART_SENTENCES)))]
        uses = arrays["uses"][mine]
        used, uses["sentence"] = np.unique(uses["sentence"], return_inverse=True)
        table = arrays["sentences"][used]
        text = [arrays["text"][ends[s - 1] if s else 0 : ends[s]].tobytes() for s in used]
        table["end"] = np.cumsum([len(one) for one in text], dtype=np.int64)
        part = {
            **{"uses": uses, "vectors": arrays["vectors"][mine], "words": words[mine]},
            **{"sentences": table, "text": np.frombuffer(b"".join(text), np.uint8)},
            "count": count[: 0 if first else None],
        }
        parts.append(folder / part_name(len(parts)))
        write_part(parts[-1], part)
    return parts


def least_draws(base: IndexFiles) -> dict[str, int]:
    """The least draw of each word of an index."""
    least = np.minimum.reduceat(_draws(base), base.arrays["offsets"][:-1])
    return dict(zip(base.words, least.tolist(), strict=True))


def _draws(base: IndexFiles) -> NDArray[np.uint64]:
    """The draw of each use of an index, as when it was chosen."""
    uses = base.arrays["uses"]
    words = np.repeat(list(base.words), np.diff(base.arrays["offsets"]))
    numbers = base.arrays["sentences"]["number"][uses["sentence"]].tolist()
    places = zip(words.tolist(), numbers, uses["position"].tolist(), strict=True)
    return np.array([draw(*place) for place in places], np.uint64)


def _summed(counts: NDArray[Any]) -> NDArray[Any]:
    """Records (word, document, n) in order, those of a word and document joined."""
    places, rows = np.unique(counts[["word", "document"]], return_inverse=True)
    found = np.zeros(len(places), counts.dtype)
    found["word"], found["document"] = places["word"], places["document"]
    np.add.at(found["n"], rows, counts["n"])
    return found


def _reserved(path: Path, kind: np.dtype[Any], n: int) -> np.memmap[Any, Any]:
    """A new array file, mapped for writing, whose bytes are all on the disk already.

    Writing to a mapped file that the disk has no space for ends the process without a message.
    """
    try:
        found = np.lib.format.open_memmap(path, "w+", kind, (n,), version=(1, 0))
        with path.open("rb+") as stream:
            stream.seek(found.offset)
            for left in range(found.nbytes, 0, -_BLOCK):
                stream.write(bytes(min(left, _BLOCK)))
    except OSError as error:
        raise write_error(error, path) from None
    return found
