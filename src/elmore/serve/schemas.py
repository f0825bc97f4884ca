"""The fields of requests, which are checked, and of errors.

answers.json has an example of the answer to each path, which the description of the service shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from elmore.options import Pooling
from elmore.serve.bodies import ServiceError

# What OpenAI's API takes in one request, and its clients send.
MAX_INPUTS = 2048
# Larger weights overflow in float32.
Weight = Annotated[float, Field(ge=-1e6, le=1e6)]
Weights = Annotated[list[Weight], Field(max_length=64)]
LayersField = Literal["mean", "top", "all"] | int | Weights


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class _Sentences(_Request):
    """Sentences as text or as tokens, never both."""

    sentences: list[str] | None = Field(None, description="one sentence per string")
    tokens: list[list[str]] | None = Field(None, description="sentences as tokens, kept as given")

    @model_validator(mode="after")
    def _one_of_them(self) -> _Sentences:
        if (self.sentences is None) == (self.tokens is None):
            raise ValueError("give either sentences or tokens")
        return self

    @property
    def given(self) -> Sequence[str] | Sequence[Sequence[str]]:
        """The sentences, as text or as tokens."""
        return self.sentences if self.sentences is not None else self.tokens or ()

    @property
    def param(self) -> str:
        """The name of the field that holds them."""
        return "tokens" if self.sentences is None else "sentences"


def _examples(*examples: dict[str, Any]) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": list(examples)})


class EmbedRequest(_Sentences):
    """Vectors for tokens, or for sentences with a pooling."""

    model_config = _examples(
        {"sentences": ["She sat on the bank.", "The bank lent money."]},
        {"tokens": [["The", "bank", "."]], "layers": "all"},
        {"sentences": ["The bank lent money."], "layers": [0.2, 0.3, 0.5], "pooling": "mean"},
    )
    layers: LayersField = Field(
        "mean", description="mean, top, all, the number of a layer, or one weight per layer"
    )
    pooling: Pooling | None = Field(
        None, description="one vector per sentence instead of one per token"
    )
    view: Literal["layers", "senses"] = Field(
        "layers", description="senses: the dense form of sense vectors instead of layers"
    )

    @model_validator(mode="after")
    def _fits(self) -> EmbedRequest:
        if self.view == "senses" and (self.layers != "mean" or self.pooling):
            raise ValueError("senses have neither layers nor pooling; leave them out")
        return self


class EmbeddingsRequest(_Request):
    """The format of OpenAI's API: one vector per sentence, the mean over tokens and layers."""

    # Its clients send fields that have no meaning here.
    model_config = ConfigDict(
        extra="ignore",
        json_schema_extra={
            "examples": [{"input": ["The bank lent money."], "encoding_format": "float"}]
        },
    )
    input: str | Annotated[list[str], Field(max_length=MAX_INPUTS)] = Field(
        description="a sentence, or several"
    )
    model: str | None = Field(None, description="any name; one model is served")
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, description="must be the model's own size")
    user: str | None = None

    @field_validator("input", mode="before")
    @classmethod
    def _no_token_ids(cls, value: Any) -> Any:
        first = value[0] if isinstance(value, list) and value else None
        first = first[0] if isinstance(first, list) and first else first
        if isinstance(first, int):
            raise ServiceError(
                400,
                "input holds token ids, which belong to the tokenizer of another model; send text",
                param="input",
            )
        return value


class ScoreRequest(_Sentences):
    """Log probabilities of sentences."""

    model_config = _examples({"sentences": ["The bank lent money."], "per_token": True})
    per_token: bool = Field(False, description="also the value of each token")


class SubstitutesRequest(_Sentences):
    """Words that are likely at a position of each sentence."""

    model_config = _examples({"sentences": ["She sat on the bank ."], "positions": [4], "k": 5})
    positions: list[int] = Field(description="one position per sentence, from 0")
    k: int = Field(10, ge=1, le=100, description="how many words")


class SensesRequest(_Sentences):
    """Sense vectors: likely words at a position, each weighted by how specific it is."""

    model_config = _examples({"sentences": ["She sat on the bank ."], "positions": [[4]], "k": 5})
    positions: list[list[int]] | None = Field(
        None, description="positions in each sentence, from 0; all by default"
    )
    k: int = Field(10, ge=1, le=200, description="how many words for each position")


class ExploreRequest(_Sentences):
    """The uses of a word, compared; the demo page uses it."""

    model_config = _examples({"sentences": ["She sat on the bank .", "The bank lent money ."]})
    word: str | None = Field(None, max_length=200, description="the service chooses one by default")


class TaskRequest(_Sentences):
    """Sentences to tag, or texts to classify."""

    model_config = _examples({"sentences": ["Ada lives in Rome."]})


Word = Annotated[str, Field(min_length=1, max_length=100)]
Marked = Annotated[str, Field(max_length=2000)]
Condition = Annotated[str, Field(min_length=1, max_length=200)]


class IndexFindRequest(_Request):
    """The uses in the index that are most similar to a marked one."""

    model_config = _examples({"text": "She sat on the [bank] of the river", "k": 5})
    text: Marked = Field(description="a sentence with one word in brackets")
    word: Word | None = Field(None, description="a word or run*; by default the marked word")
    k: int = Field(20, ge=1, le=200, description="how many uses")
    where: list[Condition] = Field([], max_length=10, description="only such documents")
    like: list[Marked] = Field([], max_length=10, description="further examples")
    unlike: list[Marked] = Field([], max_length=10, description="counterexamples")


class IndexSensesRequest(_Request):
    """The uses of a word in the index, grouped by sense."""

    model_config = _examples({"word": "bank"})
    word: Word = Field(description="a word, a list such as run,ran, or a pattern such as run*")
    max_senses: int = Field(8, ge=1, le=20, description="the largest number to try")
    where: list[Condition] = Field(
        [], max_length=10, description="only such documents: genre=news, date>=1900"
    )
    by: str | None = Field(None, max_length=100, description="a field to group documents by")


class IndexUsesRequest(_Request):
    """The sentences of chosen uses."""

    model_config = _examples({"rows": [0, 1]})
    rows: list[int] = Field(description="numbers of uses, as the other paths give them")


class ErrorDetail(BaseModel):
    type: str
    message: str
    param: str | None


class ErrorResponse(BaseModel):
    """The one format of errors."""

    error: ErrorDetail
