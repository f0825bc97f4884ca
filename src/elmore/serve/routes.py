"""What each path does: a checked request in, its response out."""

from __future__ import annotations

import asyncio
import base64
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from elmore.elmo import Elmo
from elmore.embedding.inputs import sentence_from_tokens
from elmore.embedding.results import all_layers
from elmore.embedding.stream import finish_of
from elmore.errors import ConfigError, ElmoreError
from elmore.language_model.explore import choose_uses, describe_uses, sense_words
from elmore.language_model.predictions import LanguageModel
from elmore.language_model.scores import rounded
from elmore.language_model.sense_vectors import SenseVectors
from elmore.options import Output
from elmore.serve.batcher import Batcher, Item, compute, likely, scores, senses, vectors
from elmore.serve.bodies import (
    ServiceError,
    choose_type,
    encode_vectors,
    json_response,
)
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
from elmore.tasks.folder import ready_models
from elmore.tasks.own.light import LightTagger, load_all

if TYPE_CHECKING:
    from elmore.text.tokenizer import Sentence

Result = TypeVar("Result")
Handler = Callable[..., Awaitable[Response]]
# Work on the thread of the event loop delays every client. Above these sizes, another thread
# tokenizes or encodes.
_MANY_CHARACTERS = 20_000
_MANY_NUMBERS = 8192
# Above this size a response is encoded and sent in pieces.
_STREAMED_NUMBERS = 65_536
# A word with its weight takes about as much memory as so many numbers.
_WORD_NUMBERS = 32


class Routes:
    """The paths of the API, on one model; `batcher` computes.

    Attributes:
        facts: what answers GET, by the path below /v1/.
        work: what answers POST.
    """

    def __init__(
        self, elmo: Elmo, settings: Settings, batcher: Batcher, *, has_index: bool = False
    ) -> None:
        self._elmo, self._settings, self._batcher = elmo, settings, batcher
        self._has_index = has_index
        self._no_softmax: str | None = None
        self._tasks = load_all(dict.fromkeys((*ready_models(), *settings.tasks)), elmo)
        self.facts: dict[str, Handler] = {"models": self.models, "tasks": self.tasks}
        self.work: dict[str, Handler] = {
            "embed": self.embed,
            "embeddings": self.embeddings,
            "score": self.score,
            "substitutes": self.substitutes,
            "senses": self.senses,
            "explore": self.explore,
            "tasks/{name}": self.task,
        }
        try:
            LanguageModel(elmo)
        except ConfigError as error:
            self._no_softmax = str(error)

    def warm_up(self) -> None:
        """Compute once, so that the first request does not wait for memory and kernels."""
        sentence = self._elmo.tokenize("It is ready.")
        with suppress(ElmoreError):  # of a damaged model; each request will be told
            compute(self._elmo, [Item(vectors, sentence, all_layers)], self._settings.batch_tokens)
            if self._no_softmax is None and len(sentence):
                compute(self._elmo, [Item(likely, sentence, (0, 1))], self._settings.batch_tokens)

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
        return json_response({"object": "list", "data": [entry]})

    async def tasks(self) -> Response:
        """The taggers and classifiers that are served."""
        entries = [
            {"id": name, "object": "task", "task": "tag", "labels": model.tags}
            if isinstance(model, LightTagger)
            else {"id": name, "object": "task", "task": "classify", "labels": model.classes}
            for name, model in self._tasks.items()
        ]
        return json_response({"object": "list", "data": entries})

    async def embed(self, body: EmbedRequest, request: Request) -> Response:
        """Vectors for tokens, or one per sentence with a pooling."""
        kind = choose_type(request.headers.get("accept"))
        try:
            finish = finish_of(self._elmo.engine, Output(layers=body.layers, pool=body.pooling))
        except ConfigError as error:
            raise ServiceError(422, str(error), param="layers") from None
        dense = body.view == "senses"
        if dense:
            self._need_softmax()
        sentences = await self._sentences(body.given, body.param)
        rows = len(sentences) if body.pooling else sum(len(sentence) for sentence in sentences)
        dim = self._elmo.config.lstm.projection_dim if dense else self._elmo.dim
        numbers = rows * dim * (self._elmo.n_layers if body.layers == "all" else 1)
        items = [
            Item(senses, sentence, (range(len(sentence)), SenseVectors.dense))
            if dense
            else Item(vectors, sentence, finish)
            for sentence in sentences
        ]
        values = await self._run(request, items, numbers)
        results = deque(zip(sentences, values, strict=True))
        request.scope["elmore.reservation"].results = results
        head = {"model": self._settings.name, "dim": dim}
        pieces = encode_vectors(kind, head, results, body.pooling is not None)
        if numbers > _STREAMED_NUMBERS:
            return StreamingResponse(pieces, media_type=kind)
        content = await _call(numbers > _MANY_NUMBERS, b"".join, pieces)
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
        finish = finish_of(self._elmo.engine, Output(pool="mean"))
        request.scope["elmore.reservation"].reserve(len(texts) * self._elmo.dim)
        values: list[Any] = []
        n_tokens = 0
        # Clients of OpenAI's API send more than others may; each part has the limits of a request.
        for start in range(0, len(texts), self._settings.sentences):
            part = texts[start : start + self._settings.sentences]
            sentences = await self._sentences(part, "input")
            n_tokens += sum(map(len, sentences))
            values += await self._run(request, [Item(vectors, one, finish) for one in sentences])
        usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
        head = {"object": "list", "model": self._settings.name, "usage": usage}
        many = len(values) * self._elmo.dim > _MANY_NUMBERS
        return await _call(many, _embeddings, head, values, body.encoding_format == "base64")

    async def score(self, body: ScoreRequest, request: Request) -> Response:
        """Natural logarithms, in both directions."""
        self._need_softmax()
        sentences = await self._sentences(body.given, body.param)
        items = [Item(scores, sentence) for sentence in sentences]
        found = await self._run(request, items, 4 * sum(map(len, sentences)))
        results = [score.to_dict(per_token=body.per_token) for score in found]
        return json_response({"model": self._settings.name, "results": results})

    async def substitutes(self, body: SubstitutesRequest, request: Request) -> Response:
        """The words that the language model expects at a position of each sentence."""
        self._need_softmax()
        sentences = await self._sentences(body.given, body.param)
        _check_positions(sentences, [[position] for position in body.positions])
        pairs = list(zip(sentences, body.positions, strict=True))
        items = [Item(likely, sentence, (position, body.k)) for sentence, position in pairs]
        found = await self._run(request, items, _WORD_NUMBERS * len(pairs) * body.k)
        results = [
            {"tokens": sentence.tokens, **_place(sentence, position, words, "log_prob")}
            for (sentence, position), words in zip(pairs, found, strict=True)
        ]
        return json_response({"model": self._settings.name, "results": results})

    async def senses(self, body: SensesRequest, request: Request) -> Response:
        """Words that fit positions, weighted by how specific to the position they are."""
        self._need_softmax()
        sentences = await self._sentences(body.given, body.param)
        chosen: list[Sequence[int]] = [range(len(sentence)) for sentence in sentences]
        if body.positions is not None:
            chosen = list(body.positions)
            _check_positions(sentences, chosen)
        count = sum(map(len, chosen))
        self._check(count, "tokens", "positions")  # a position may be asked for several times

        def readable(found: SenseVectors) -> list[list[tuple[str, float]]]:
            return [found.words(row, body.k) for row in range(len(found))]

        pairs = zip(sentences, chosen, strict=True)
        items = [Item(senses, sentence, (mine, readable)) for sentence, mine in pairs]
        found = await self._run(request, items, _WORD_NUMBERS * count * body.k)
        answer = {
            "model": self._settings.name,
            "results": [
                {
                    "tokens": s.tokens,
                    "places": [_place(s, *one, "weight") for one in zip(mine, words, strict=True)],
                }
                for s, mine, words in zip(sentences, chosen, found, strict=True)
            ],
        }
        return await _call(count * body.k > _MANY_NUMBERS, json_response, answer)

    async def explore(self, body: ExploreRequest, request: Request) -> Response:
        """Inner products of all uses of a word in all layers, and their sense vectors."""
        sentences = await self._sentences(body.given, body.param)
        vocabulary = self._elmo.checkpoint.vocabulary
        chosen = choose_uses(sentences, body.word, vocabulary, self._settings.uses)
        places = chosen.by_sentence
        rows = sum(len(sentences[k]) for k in places)
        items = [Item(vectors, sentences[k], all_layers) for k in places]
        if self._no_softmax is None:
            items += [Item(senses, sentences[k], (mine, sense_words)) for k, mine in places.items()]
        # The response is small; what takes memory are the layers it is made from.
        found = await self._run(request, items, rows * self._elmo.n_layers * self._elmo.dim)
        layers = dict(zip(places, found[: len(places)], strict=True))
        words = None if self._no_softmax else found[len(places) :]
        name, n_layers = self._settings.name, self._elmo.n_layers
        return json_response(describe_uses(name, n_layers, chosen, layers, words))

    async def task(self, name: str, body: TaskRequest, request: Request) -> Response:
        """Tags of sentences, or labels of texts."""
        model = self._tasks.get(name)
        if model is None:
            raise ServiceError(404, "there is no task of that name; see /v1/tasks")
        given: Sequence[Any] = body.given
        self._check(len(given), "sentences", body.param)
        # Texts to classify are divided into sentences: one list of sentences for each.
        many = sum(map(len, given)) > _MANY_CHARACTERS
        read = await _call(many, lambda: [model.read(one) for one in given])
        items = [Item(vectors, one, model.finish) for sentences in read for one in sentences]
        n_tokens = sum(len(item.sentence) for item in items)
        self._check(n_tokens, "tokens", body.param)
        # The response is small; a classifier keeps what it reads of all layers until the end.
        numbers = n_tokens * self._elmo.n_layers * self._elmo.dim
        found = iter(await self._run(request, items, numbers))
        results = [model.join(one, [next(found) for _ in one]).to_json() for one in read]
        return json_response({"model": name, "results": results})

    # ----------------------------------------------------------------------- helpers

    async def _sentences(self, given: Sequence[Any], param: str) -> list[Sentence]:
        """Texts or lists of tokens as sentences, if they are within the limits."""
        self._check(len(given), "sentences", param)
        many = sum(map(len, given)) > _MANY_CHARACTERS
        made = await _call(many, lambda: [self._sentence(one) for one in given])
        self._check(sum(map(len, made)), "tokens", param)
        return made

    def _sentence(self, given: str | Sequence[str]) -> Sentence:
        if isinstance(given, str):
            return self._elmo.tokenize(given)
        return sentence_from_tokens(given, "tokens", "use sentences")

    def _check(self, count: int, what: Literal["sentences", "tokens"], param: str) -> None:
        """Refuse more sentences or tokens than a request may have."""
        limit: int = getattr(self._settings, what)
        if count > limit:
            raise ServiceError(
                422,
                f"{count} {what}, more than the limit of {limit}; send several requests",
                param=param,
            )

    def _need_softmax(self) -> None:
        if self._no_softmax is not None:
            raise ServiceError(422, self._no_softmax)

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


async def _call(heavy: bool, function: Callable[..., Result], *args: Any) -> Result:
    """Call a function, in another thread if it is heavy."""
    return await to_thread.run_sync(function, *args) if heavy else function(*args)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _check_positions(sentences: Sequence[Sentence], chosen: Sequence[Sequence[int]]) -> None:
    if len(chosen) != len(sentences):
        message = f"positions for {len(chosen)} of {len(sentences)} sentences; give them for each"
        raise ServiceError(422, message, param="positions")
    for k, (sentence, positions) in enumerate(zip(sentences, chosen, strict=True)):
        for position in positions:
            if not 0 <= position < len(sentence):
                raise ServiceError(
                    422,
                    f"positions.{k}: {position} but the sentence has {len(sentence)} tokens; count "
                    "from 0",
                    param=f"positions.{k}",
                )


def _place(
    sentence: Sentence, position: int, words: Sequence[tuple[str, float]], value: str
) -> dict[str, Any]:
    """A position and the words that fit it, each with its `value`."""
    return {
        "position": position,
        "token": sentence.tokens[position],
        "words": [{"word": word, value: rounded(x)} for word, x in words],
    }


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
    return json_response({**head, "data": data})
