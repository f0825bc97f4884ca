"""What each path does: a checked request in, its response out."""

from __future__ import annotations

import asyncio
import base64
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from elmore.elmo import Elmo
from elmore.embedding.inputs import sentence_from_tokens
from elmore.embedding.stream import finish_of
from elmore.errors import ConfigError, ElmoreError
from elmore.language_model.explore import choose_uses, describe_uses, sense_words
from elmore.language_model.predictions import LanguageModel
from elmore.serve.batcher import Batcher
from elmore.serve.bodies import (
    JSON,
    Embedded,
    choose_type,
    encode_json,
    encode_vectors,
    number,
)
from elmore.serve.errors import ServiceError
from elmore.serve.schemas import (
    EmbeddingsRequest,
    EmbedRequest,
    ExploreRequest,
    ScoreRequest,
    SensesRequest,
    SubstitutesRequest,
    TaskRequest,
)
from elmore.serve.settings import Settings
from elmore.serve.work import Item, Likely, Scored, Senses, Vectors, compute
from elmore.tasks.folder import ready_models
from elmore.tasks.own.light import LightTagger, load_all

if TYPE_CHECKING:
    from elmore.language_model.sense_vectors import SenseVectors
    from elmore.text.sentence import Sentence

__all__ = ["Routes"]

Result = TypeVar("Result")
# Work on the thread of the event loop delays every client. Above these sizes, another thread
# tokenizes or encodes.
_MANY_CHARACTERS = 20_000
_MANY_NUMBERS = 8192
# Above this size a response is encoded and sent in pieces.
_STREAMED_NUMBERS = 65_536
# A word with its weight takes about as much memory as so many numbers.
_WORD_NUMBERS = 32
_THREADS = 2  # few, because each keeps memory of its own for what it has encoded


class Routes:
    """The paths of the API, on one model; `batcher` computes."""

    def __init__(
        self, elmo: Elmo, settings: Settings, batcher: Batcher, *, has_index: bool = False
    ) -> None:
        self._elmo, self._settings, self._batcher = elmo, settings, batcher
        self._has_index = has_index
        self._no_softmax: str | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._tasks = load_all(dict.fromkeys((*ready_models(), *settings.tasks)), elmo)
        try:
            LanguageModel(elmo)
        except ConfigError as error:
            self._no_softmax = str(error)

    def close(self) -> None:
        """Stop its threads."""
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None

    def warm_up(self) -> None:
        """Compute once, so that the first request does not wait for memory and kernels."""
        sentence = self._elmo.tokenize("It is ready.")
        with suppress(ElmoreError):  # of a damaged model; each request will be told
            compute(self._elmo, [Vectors(sentence)], self._settings.batch_tokens)
            if self._no_softmax is None and len(sentence):
                compute(self._elmo, [Likely(sentence, 0, 1)], self._settings.batch_tokens)

    async def models(self) -> Response:
        """The model that is served."""
        entry = {
            "id": self._settings.name,
            "object": "model",
            "owned_by": "elmore",
            "dim": self._elmo.dim,
            "n_layers": self._elmo.n_layers,
            "language_model": self._no_softmax is None,
            "index": self._has_index,
        }
        return _json({"object": "list", "data": [entry]})

    async def tasks(self) -> Response:
        """The taggers and classifiers that are served."""
        data = [
            {
                "id": name,
                "object": "task",
                "task": model.name,
                "labels": model.tags if isinstance(model, LightTagger) else model.classes,
            }
            for name, model in self._tasks.items()
        ]
        return _json({"object": "list", "data": data})

    async def embed(self, body: EmbedRequest, request: Request) -> Response:
        """Vectors for tokens, or one per sentence with a pooling."""
        kind = choose_type(request.headers.get("accept"))
        try:
            finish = finish_of(self._elmo.engine, body.layers, body.pooling)
        except ConfigError as error:
            raise ServiceError(422, str(error), param="layers") from None
        senses = body.view == "senses"
        if senses:
            self._need_softmax()
        sentences = await self._sentences(body.sentences, body.tokens)
        rows = len(sentences) if body.pooling else sum(len(sentence) for sentence in sentences)
        dim = self._elmo.config.lstm.projection_dim if senses else self._elmo.dim
        numbers = rows * dim * (self._elmo.n_layers if body.layers == "all" else 1)
        items: list[Item] = [
            Senses(sentence, range(len(sentence)), _dense) if senses else Vectors(sentence, finish)
            for sentence in sentences
        ]
        values = await self._run(request, items, numbers)
        results = deque(map(Embedded, sentences, values))
        request.scope["elmore.reservation"].hold(results)
        head = {"model": self._settings.name, "dim": dim}
        pieces = encode_vectors(kind, head, results, body.pooling is not None)
        if numbers > _STREAMED_NUMBERS:
            return StreamingResponse(self._each(pieces), media_type=kind)
        content = await self._call(numbers > _MANY_NUMBERS, b"".join, pieces)
        return Response(content, media_type=kind)

    async def embeddings(self, body: EmbeddingsRequest, request: Request) -> Response:
        """One vector per sentence: the mean over tokens and layers."""
        if body.dimensions is not None and body.dimensions != self._elmo.dim:
            raise ServiceError(
                422,
                f"dimensions={body.dimensions} but vectors have {self._elmo.dim}; leave it out",
                param="dimensions",
            )
        texts = [body.input] if isinstance(body.input, str) else body.input
        finish = finish_of(self._elmo.engine, "mean", "mean")
        request.scope["elmore.reservation"].reserve(len(texts) * self._elmo.dim)
        values: list[Any] = []
        n_tokens = 0
        # Clients of OpenAI's API send more than others may; each part has the limits of a request.
        for start in range(0, len(texts), self._settings.sentences):
            part = texts[start : start + self._settings.sentences]
            sentences = await self._sentences(part, None, "input")
            n_tokens += sum(map(len, sentences))
            values += await self._run(request, [Vectors(one, finish) for one in sentences])
        usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
        head = {"object": "list", "model": self._settings.name, "usage": usage}
        many = len(values) * self._elmo.dim > _MANY_NUMBERS
        return await self._call(many, _embeddings, head, values, body.encoding_format == "base64")

    async def score(self, body: ScoreRequest, request: Request) -> Response:
        """Natural logarithms, in both directions."""
        self._need_softmax()
        sentences = await self._sentences(body.sentences, body.tokens)
        items = [Scored(sentence) for sentence in sentences]
        scores = await self._run(request, items, 4 * sum(map(len, sentences)))
        results = [score.to_dict(per_token=body.per_token) for score in scores]
        return _json({"model": self._settings.name, "results": results})

    async def substitutes(self, body: SubstitutesRequest, request: Request) -> Response:
        """The words that the language model expects at a position of each sentence."""
        self._need_softmax()
        if len(body.positions) != body.count:
            raise ServiceError(
                422,
                f"{len(body.positions)} positions for {body.count} sentences; give one for each",
                param="positions",
            )
        sentences = await self._sentences(body.sentences, body.tokens)
        pairs = list(zip(sentences, body.positions, strict=True))
        for k, (sentence, position) in enumerate(pairs):
            _check_position(f"positions.{k}", position, sentence)
        items = [Likely(sentence, position, body.k) for sentence, position in pairs]
        found = await self._run(request, items, _WORD_NUMBERS * len(pairs) * body.k)
        results = [
            {
                "tokens": sentence.tokens,
                "position": position,
                "token": sentence.tokens[position],
                "words": [{"word": word, "log_prob": number(value)} for word, value in words],
            }
            for (sentence, position), words in zip(pairs, found, strict=True)
        ]
        return _json({"model": self._settings.name, "results": results})

    async def senses(self, body: SensesRequest, request: Request) -> Response:
        """Words that fit positions, weighted by how specific to the position they are."""
        self._need_softmax()
        if body.positions is not None and len(body.positions) != body.count:
            raise ServiceError(
                422,
                f"positions for {len(body.positions)} of {body.count} sentences; give a list for "
                "each, or leave it out for all tokens",
                param="positions",
            )
        sentences = await self._sentences(body.sentences, body.tokens)
        chosen: list[Sequence[int]] = [range(len(sentence)) for sentence in sentences]
        if body.positions is not None:
            chosen = list(body.positions)
            for k, (sentence, positions) in enumerate(zip(sentences, chosen, strict=True)):
                for n, position in enumerate(positions):
                    _check_position(f"positions.{k}.{n}", position, sentence)
        count = sum(map(len, chosen))
        self._check(count, "tokens", "positions")  # a position may be asked for several times

        def readable(found: SenseVectors) -> list[list[tuple[str, float]]]:
            return [found.words(row, body.k) for row in range(len(found))]

        items = [Senses(s, mine, readable) for s, mine in zip(sentences, chosen, strict=True)]
        found = await self._run(request, items, _WORD_NUMBERS * count * body.k)
        answer = {
            "model": self._settings.name,
            "results": [
                {"tokens": s.tokens, "places": _places(s, mine, words)}
                for s, mine, words in zip(sentences, chosen, found, strict=True)
            ],
        }
        return await self._call(count * body.k > _MANY_NUMBERS, _json, answer)

    async def explore(self, body: ExploreRequest, request: Request) -> Response:
        """Inner products of all uses of a word in all layers, and their sense vectors."""
        sentences = await self._sentences(body.sentences, body.tokens)
        vocabulary = self._elmo.checkpoint.vocabulary
        chosen = choose_uses(sentences, body.word, vocabulary, self._settings.uses)
        places = chosen.by_sentence
        rows = sum(len(sentences[k]) for k in places)
        items: list[Item] = [Vectors(sentences[k]) for k in places]
        if self._no_softmax is None:
            items += [Senses(sentences[k], mine, sense_words) for k, mine in places.items()]
        # The response is small; what takes memory are the layers it is made from.
        found = await self._run(request, items, rows * self._elmo.n_layers * self._elmo.dim)
        layers = dict(zip(places, found[: len(places)], strict=True))
        senses = None if self._no_softmax else found[len(places) :]
        return _json(
            describe_uses(self._settings.name, self._elmo.n_layers, chosen, layers, senses)
        )

    async def task(self, name: str, body: TaskRequest, request: Request) -> Response:
        """Tags of sentences, or labels of texts."""
        model = self._tasks.get(name)
        if model is None:
            raise ServiceError(404, "there is no task of that name; see /v1/tasks")
        given: Sequence[Any] = body.sentences if body.sentences is not None else body.tokens or ()
        param = "sentences" if body.sentences is not None else "tokens"
        self._check(len(given), "sentences", param)
        size = sum(map(len, given))
        # Texts to classify are divided into sentences: one list of sentences for each.
        read = await self._call(size > _MANY_CHARACTERS, lambda: [model.read(one) for one in given])
        items = [Vectors(sentence, model.finish) for sentences in read for sentence in sentences]
        n_tokens = sum(len(item.sentence) for item in items)
        self._check(n_tokens, "tokens", param)
        found = iter(await self._run(request, items, _WORD_NUMBERS * n_tokens))
        results = [model.join([next(found) for _ in sentences]).to_json() for sentences in read]
        return _json({"model": name, "results": results})

    # ----------------------------------------------------------------------- helpers

    async def _sentences(
        self,
        texts: Sequence[str] | None,
        tokens: Sequence[Sequence[str]] | None,
        name: str | None = None,
    ) -> list[Sentence]:
        given: Sequence[Any] = texts if texts is not None else tokens or ()
        name = name or ("sentences" if texts is not None else "tokens")
        self._check(len(given), "sentences", name)
        if texts is None:
            made = [sentence_from_tokens(item, "tokens", "use sentences") for item in given]
        else:
            size = sum(len(text) for text in texts)
            made = await self._call(size > _MANY_CHARACTERS, self._tokenized, texts)
        self._check(sum(map(len, made)), "tokens", name)
        return made

    def _check(self, count: int, what: Literal["sentences", "tokens"], param: str) -> None:
        """Refuse more sentences or tokens than a request may have."""
        limit: int = getattr(self._settings, what)
        if count > limit:
            raise ServiceError(
                422,
                f"{count} {what}, more than the limit of {limit}; send several requests",
                param=param,
            )

    def _tokenized(self, texts: Sequence[str]) -> list[Sentence]:
        return [self._elmo.tokenize(text) for text in texts]

    def _need_softmax(self) -> None:
        if self._no_softmax is not None:
            raise ServiceError(422, self._no_softmax)

    async def _call(self, heavy: bool, function: Callable[..., Result], *args: Any) -> Result:
        """Call a function, in another thread if it is heavy."""
        if not heavy:
            return function(*args)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, "elmore-encode")
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *args)

    async def _each(self, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
        """Encode the pieces of a response one by one, each when those before it are sent."""
        while piece := await self._call(True, next, pieces, b""):
            yield piece

    async def _run(self, request: Request, items: Sequence[Item], numbers: int = 0) -> list[Any]:
        """Compute, unless the client disconnects first or too much is under way.

        `numbers` is how many numbers of float32 the results take; they are reserved first.
        """
        request.scope["elmore.reservation"].reserve(numbers)
        work = asyncio.ensure_future(self._batcher.run(items))
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise ServiceError(499)
            return work.result()
        finally:
            for task in (work, gone):
                task.cancel()
            # A task that was cancelled must be awaited, or its place in the queue is freed later.
            await asyncio.gather(work, gone, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _check_position(name: str, position: int, sentence: Sentence) -> None:
    if not 0 <= position < len(sentence):
        raise ServiceError(
            422,
            f"{name} is {position} but the sentence has {len(sentence)} tokens; count from 0",
            param=name,
        )


def _places(
    sentence: Sentence, positions: Sequence[int], found: Sequence[Sequence[tuple[str, float]]]
) -> list[dict[str, Any]]:
    return [
        {
            "position": position,
            "token": sentence.tokens[position],
            "words": [{"word": word, "weight": number(weight)} for word, weight in words],
        }
        for position, words in zip(positions, found, strict=True)
    ]


def _dense(found: SenseVectors) -> Any:
    return found.dense()


def _json(value: Any) -> Response:
    return Response(encode_json(value), media_type=JSON)


def _embeddings(head: dict[str, Any], values: Sequence[Any], as_text: bool) -> Response:
    data = [
        {
            "object": "embedding",
            "index": k,
            "embedding": base64.b64encode(value.astype("<f4").tobytes()).decode("ascii")
            if as_text
            else [float(f"{x:.7g}") for x in value.tolist()],
        }
        for k, value in enumerate(values)
    ]
    return _json({**head, "data": data})
