"""The paths below /v1/index; nothing is ever written."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.responses import Response

from elmore.base.messages import shown
from elmore.embedding.clustering import principal_axes
from elmore.embedding.results import unit
from elmore.errors import ConfigError, ElmoreError, FormatError, InputError
from elmore.language_model.sense_vectors import marked_place
from elmore.senses.change import FUNCTION_WORDS
from elmore.senses.corrections import corrections_file
from elmore.senses.counting import collocates
from elmore.senses.index import Index, Rows, Use
from elmore.serve.bodies import JSON, ServiceError, encode_json, json_response
from elmore.serve.schemas import IndexFindRequest, IndexSensesRequest, IndexUsesRequest
from elmore.serve.settings import Settings

# Words that the page offers; all others can be asked for.
_MAX_WORDS = 2000
# Uses that one search may compare: about 0.4 s on one core.
_MAX_SEARCHED = 1_000_000
# Requests that may wait for the one thread, and answers that are kept: grouping takes a second.
_MAX_WAITING, _MAX_KEPT = 16, 32
# Of a field by which the page groups, of collocates, and of files that it names.
_MAX_GROUPS, _MAX_NEAR, _MAX_SOURCES = 16, 8, 1000
_WIDTH = 200  # characters of context on each side


class IndexRoutes:
    """What can be asked of an index. One thread computes, in addition to that of the batcher.

    Args:
        index: opened with the model that is served.
        settings: its limits.
    """

    def __init__(self, index: Index, settings: Settings) -> None:
        self._index, self._settings = index, settings
        self._names = _file_names(index.sources)
        self._thread = ThreadPoolExecutor(1, "elmore-index")
        self._waiting = 0
        self._kept: OrderedDict[str, bytes] = OrderedDict()

    def close(self) -> None:
        """Stop its thread."""
        self._thread.shutdown(cancel_futures=True)

    async def about(self) -> Response:
        """The index that is served."""
        index = self._index
        words = sorted(index.words.items(), key=lambda item: -item[1])[:_MAX_WORDS]
        answer = {
            "name": index.path.resolve().name,
            "n_uses": len(index),
            "n_words": len(index.words),
            "words": [{"word": word, "count": count} for word, count in words],
            "sources": [self._names[source] for source in index.sources[:_MAX_SOURCES]],
            "fields": list(index.documents.values),
        }
        return json_response(answer)

    async def find(self, body: IndexFindRequest) -> Response:
        """The uses that are most similar to a marked one."""
        return await self._run(self._find, body)

    async def senses(self, body: IndexSensesRequest) -> Response:
        """The uses of a word in groups, with their places on a map."""
        return await self._run(self._senses, body)

    async def uses(self, body: IndexUsesRequest) -> Response:
        """The sentences of chosen uses."""
        limit = self._settings.index_lines
        if len(body.rows) > limit:
            raise ServiceError(
                422,
                f"{len(body.rows)} rows, more than the limit of {limit}; send several requests",
                param="rows",
            )
        for k, row in enumerate(body.rows):
            if not 0 <= row < len(self._index):
                raise ServiceError(
                    422,
                    f"rows.{k} is {row} but the index has {len(self._index)} uses; count from 0",
                    param=f"rows.{k}",
                )
        return await self._run(
            lambda: encode_json({"uses": [self._line(self._index.use(row)) for row in body.rows]})
        )

    # --------------------------------------------------------------- on the thread

    def _find(self, body: IndexFindRequest) -> bytes:
        place = marked_place(self._index, body.text)
        if body.word is None:
            self._rows(place[0].tokens[place[1]], _MAX_SEARCHED, literal=True)
        else:
            self._rows(body.word, _MAX_SEARCHED)
        found = self._index.where(*body.where).find(
            place, word=body.word, k=body.k, like=body.like, unlike=body.unlike
        )
        hits = [
            {"cosine": round(hit.score or 0.0, 4), **self._line(hit.use), "shared": hit.shared}
            for hit in found.hits
        ]
        return encode_json({"query": found.query, "hits": hits})

    def _senses(self, body: IndexSensesRequest) -> bytes:
        key = f"{_corrected(self._index)} {body.model_dump_json()}"
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        words = [word for part in body.word.split(",") if (word := part.strip())] or [body.word]
        self._rows(words, self._settings.index_uses)
        index = self._index.where(*body.where)
        asked = words[0] if len(words) == 1 else words
        rows = index.rows(asked)
        found = index.senses(asked, max_senses=body.max_senses)
        vectors = unit(self._index.vectors(rows))
        cosines = (vectors * found.centres[found.groups]).sum(axis=1)
        points = principal_axes(vectors)
        # By sense, and in each the most typical use first.
        order = np.lexsort((-cosines, found.groups))
        groups = {} if body.by is None else _divided(index, body.by)
        members = np.full(len(rows), -1)
        for number, part in enumerate(groups.values()):
            members[part.has(rows)] = number
        answer = {
            "word": found.word,
            "stability": round(found.stability, 4),
            "senses": [
                {
                    "number": sense.number,
                    "name": sense.name,
                    "count": len(sense.rows),
                    "share": round(sense.share, 4),
                    "sources": {
                        self._names[source]: round(share, 4)
                        for source, share in [*sense.sources.items()][:_MAX_SOURCES]
                    },
                    "near": _near(index, asked, sense.rows),
                }
                for sense in found.senses
            ],
            "rows": rows[order].tolist(),
            "numbers": (found.groups[order] + 1).tolist(),
            "cosines": _rounded(cosines[order]),
            "x": _rounded(points[order, 0]),
            "y": _rounded(points[order, 1]),
            "members": members[order].tolist(),
            "groups": [
                {
                    "label": self._names.get(label, label),
                    "per_million": round(
                        1e6 * int(part.frequency(asked).sum()) / max(int(part.n_words.sum()), 1), 2
                    ),
                    "shares": [
                        round(float(np.mean(mine == k)), 4) if len(mine) else 0.0
                        for k in range(len(found))
                    ],
                }
                for number, (label, part) in enumerate(groups.items())
                for mine in [found.groups[members == number]]
            ],
        }
        self._kept[key] = encode_json(answer)
        if len(self._kept) > _MAX_KEPT:
            self._kept.popitem(last=False)
        return self._kept[key]

    # --------------------------------------------------------------- helpers

    def _rows(self, word: str | list[str], limit: int, *, literal: bool = False) -> Rows:
        words = [word] if isinstance(word, str) else word
        # Somebody else's regular expression can take forever.
        if not literal and any(w.startswith("/") and len(w) > 2 for w in words):
            raise ServiceError(
                422, "regular expressions are not served; use a pattern such as run*", param="word"
            )
        rows = self._index.rows(word, literal=literal)
        if len(rows) > limit:
            raise ServiceError(
                422,
                f"'{shown(', '.join(words), 60)}' has {len(rows)} uses, more than the limit of "
                f"{limit}; ask for a rarer word",
                param="word",
            )
        return rows

    def _line(self, use: Use) -> dict[str, Any]:
        left, word, right = use.context(_WIDTH)
        where = {"source": self._names[use.source], "line": use.line}
        return {"row": use.row, "left": left, "word": word, "right": right, **where}

    async def _run(self, function: Callable[..., bytes], *args: Any) -> Response:
        if self._waiting >= _MAX_WAITING:
            raise ServiceError(429, retry_after=2)
        self._waiting += 1
        loop = asyncio.get_running_loop()
        try:
            work = loop.run_in_executor(self._thread, function, *args)
            content = await asyncio.wait_for(work, self._settings.request_seconds)
        except TimeoutError:
            raise ServiceError(
                503, "the result took too long; ask for less", retry_after=5
            ) from None
        except FormatError:  # of the service's own files, which clients must not see
            raise
        except ElmoreError as error:
            raise ServiceError(422, str(error)) from None
        finally:
            self._waiting -= 1
        return Response(content, media_type=JSON)


def _corrected(index: Index) -> int:
    """When senses were last corrected by hand, in nanoseconds; 0 for never."""
    with contextlib.suppress(FileNotFoundError):
        return corrections_file(index).stat().st_mtime_ns
    return 0


def _divided(index: Index, by: str) -> dict[str, Index]:
    """The documents in few groups: by the values of a field, or by the years in them."""
    index.documents.field(by)  # refuses an unknown one
    for period in (None, 1, 2, 5, 10, 20, 50, 100):
        try:
            groups = index.groups(by, period)
        except ConfigError:  # too many values, or no years in them
            continue
        if len(groups) <= _MAX_GROUPS:
            return groups
    raise ConfigError(f"'{shown(by, 40)}' has too many values; group by another field")


def _near(index: Index, word: str | list[str], rows: Rows) -> list[str]:
    """The words that are near some uses more often than elsewhere, but for function words."""
    try:
        found = collocates(index, word, rows=rows, top=4 * _MAX_NEAR, sort="log_dice")
    except InputError:  # there are too few uses
        return []
    names = (str(row["collocate"]) for table in found.tables.values() for row in table)
    return [name for name in names if name not in FUNCTION_WORDS][:_MAX_NEAR]


def _file_names(sources: Sequence[str]) -> dict[str, str]:
    """Files without their folders, which clients must not see unless two names are the same."""
    names: dict[str, str] = {}
    parts = {source: source.replace("\\", "/").split("/") for source in sources}
    same, n = list(parts), 1
    while same:
        tails = {source: "/".join(mine[-n:]) for source, mine in parts.items()}
        counts = Counter(tails.values())
        names |= {source: tails[source] for source in same}
        same = [s for s in same if counts[tails[s]] > 1 and n < len(parts[s])]
        n += 1
    return names


def _rounded(values: NDArray[Any]) -> list[float]:
    rounded: list[float] = values.astype(float).round(4).tolist()
    return rounded
