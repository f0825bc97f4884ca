"""Join the parts of an index into its arrays, and divide an index into parts again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmore.base.atomic import write_error
from elmore.senses.files import IndexFiles
from elmore.senses.parts import draw

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


def divided(
    base: IndexFiles, words: NDArray[np.int32], kept: NDArray[np.bool_]
) -> Iterator[dict[str, NDArray[Any]]]:
    """Divide an index into parts.

    Args:
        base: the index.
        words: the new number of each of its words.
        kept: which of its uses are still needed.
    """
    arrays, sizes = base.arrays, np.diff(base.arrays["offsets"])
    rows = np.flatnonzero(kept)
    rows = rows[np.argsort(arrays["uses"]["sentence"][rows], kind="stable")]
    sentences, ends = arrays["uses"]["sentence"][rows], arrays["sentences"]["end"]
    used, count = np.unique(sentences), np.array(arrays["count"])
    count["word"] = words[count["word"]]
    for first in range(0, len(used), _PART_SENTENCES):
        some = used[first : first + _PART_SENTENCES]
        mine = rows[slice(*np.searchsorted(sentences, [some[0], some[-1] + 1]))]
        uses, table = arrays["uses"][mine], arrays["sentences"][some]
        uses["sentence"] = np.searchsorted(some, uses["sentence"])
        text = [arrays["text"][ends[s - 1] if s else 0 : ends[s]] for s in some]
        table["end"] = np.cumsum([len(one) for one in text])
        yield {
            **{"uses": uses, "vectors": arrays["vectors"][mine], "sentences": table},
            **{"words": np.repeat(words, sizes)[mine], "text": np.concatenate(text)},
            "count": count[: 0 if first else None],
        }


def draws_of(files: IndexFiles) -> NDArray[np.uint64]:
    """The draw of each use of an index, as when it was chosen."""
    uses = files.arrays["uses"]
    words = np.repeat(list(files.words), np.diff(files.arrays["offsets"]))
    numbers = files.arrays["sentences"]["number"][uses["sentence"]].tolist()
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
