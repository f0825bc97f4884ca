"""Upload a model to the Hugging Face hub, with a card made from its files.

`Elmo.load("owner/name")` loads it; `published/hub.py` downloads it.
"""

from __future__ import annotations

import contextlib
import json
import math
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmore._version import __version__
from elmore.base.messages import shown
from elmore.base.optional import require
from elmore.config import count_parameters
from elmore.embedding.load import ModelPath, read_checkpoint
from elmore.errors import ConfigError, ElmoreError
from elmore.formats import elmore_folder
from elmore.formats.checkpoint import Checkpoint
from elmore.published.catalog import bundled_model
from elmore.published.hub import is_hugging_face, is_offline
from elmore.tasks.folder import FACTS, find_task, read_task
from elmore.training.run import Run

if TYPE_CHECKING:
    from elmore.elmo import Elmo

_CARD = "README.md"
# What an elmore folder may hold; nothing else of a model's folder is ever sent.
_FILES = ("config.json", "model.safetensors", "vocab.txt", "characters.dic", "manifest.json")
# What a folder of a trained task may hold, in addition to the biLM inside it.
_TASK_FILES = ("task.json", "model.safetensors", "words.txt")
_TAGS = ("elmo", "elmore", "contextual-word-vectors", "bilm")


def push_to_hub(
    model: Elmo | Run | ModelPath,
    repository: str,
    *,
    card: str | None = None,
    private: bool | None = None,
    revision: str | None = None,
    message: str = "Upload a model of elmore",
    token: str | None = None,
) -> str:
    """Upload a model to the Hugging Face hub, in one commit.

    It sends the files of elmore's own folder (safetensors and JSON, no pickle) and the card; of a
    training run the best model, never the state of its optimizer.

    Args:
        model: a loaded model, a run, or a folder, name or files as in `Elmo.load`; or a trained
            task or its folder, which `elmore.tagger` and `elmore.classifier` load by that name.
        repository: `owner/name`; created if missing.
        card: the README.md; what `model_card` gives by default.
        private: whether a new repository is; the hub decides by default.
        revision: the branch, created if missing; the main one by default.
        message: of the commit.
        token: your access token; by default that of `hf auth login` or HF_TOKEN.

    Returns:
        the address of the commit.

    Raises:
        MissingExtra: huggingface_hub is not installed.
        ElmoreError: the hub refuses, or elmore is offline.
    """
    name = _repository(repository)
    hub: Any = require("huggingface_hub", "hub", "push_to_hub")
    if is_offline():
        raise ElmoreError(f"elmore is offline (ELMORE_OFFLINE); unset it to push to '{name}'")
    with _folder(model) as path:
        is_task = (path / FACTS).is_file()
        known = [*_TASK_FILES, *(f"elmo/{file}" for file in _FILES)] if is_task else [*_FILES]
        text = card
        if text is None:
            text = _task_card(path, name) if is_task else model_card(model, name)
        names = [file for file in known if (path / file).is_file()]
        operations = [hub.CommitOperationAdd(file, str(path / file)) for file in names]
        operations.append(hub.CommitOperationAdd(_CARD, text.encode()))
        try:
            api = hub.HfApi(token=token)
            api.create_repo(name, private=private, exist_ok=True)
            if revision is not None:
                api.create_branch(name, branch=revision, exist_ok=True)
            there = set(api.list_repo_files(name, revision=revision))
            # A vocabulary of the model that was there before would not match the new manifest.
            operations += [
                hub.CommitOperationDelete(file)
                for file in known
                if file in there and file not in names
            ]
            commit = api.create_commit(name, operations, commit_message=message, revision=revision)
        except Exception as error:  # its errors have no common base, and change with its versions
            first = str(error).strip().split("\n")[0]
            raise ElmoreError(
                f"'{name}' could not be pushed to the Hugging Face hub ({shown(first, 160)}); "
                "check the name and your token (`hf auth login`), or try again"
            ) from error
        return str(commit.commit_url)


def model_card(
    model: Elmo | Run | ModelPath,
    repository: str,
    *,
    language: str | Sequence[str] | None = None,
    licence: str | None = None,
    data: str | None = None,
) -> str:
    """The card of a model, from what its files and its run say.

    Args:
        model: as in `push_to_hub`.
        repository: `owner/name`, for the lines that load it.
        language: its ISO 639 code, or several.
        licence: as the hub writes it, such as "apache-2.0"; the card says "not stated" without one.
        data: a sentence about the text it was trained on.

    Returns:
        Markdown with the hub's YAML head.
    """
    name = _repository(repository)
    run = _run(model)
    checkpoint = _checkpoint(model, run)
    codes = [language] if isinstance(language, str) else list(language or ())
    head: dict[str, Any] = {"library_name": "elmore", "pipeline_tag": "feature-extraction"}
    head["tags"] = list(_TAGS)
    head |= {"language": codes} if codes else {}
    head |= {"license": licence} if licence is not None else {}
    parts = [
        "A bidirectional language model that gives each word a vector for its context (ELMo, "
        "Peters et al. 2018).",
        "## Use\n\n```python\nfrom elmore import Elmo                # elmore with its extra hub\n"
        f'elmo = Elmo.load("{name}")\n'
        'vectors = elmo.embed(["Stocks fell .", "She fell ."])   # a list of (tokens, '
        f"{checkpoint.config.dim})\n```",
        "## Facts\n\n" + _table(_facts(checkpoint, licence)),
        "## Training data\n\n" + (data or "Not described."),
    ]
    notes = {"Notes of the model": checkpoint.notes}
    notes |= {} if run is None else {"Recipe": run.recipe.to_json()}
    for title, values in notes.items():
        parts += [f"## {title}\n\n```json\n{json.dumps(values, indent=2)}\n```"] if values else []
    return _card(head, name, parts)


def _card(head: dict[str, Any], name: str, parts: Sequence[str]) -> str:
    # JSON is YAML too, and no quote or colon in a value can break it.
    yaml = "".join(f"{key}: {json.dumps(value)}\n" for key, value in head.items())
    title, end = f"# {name.partition('/')[2]}", f"Written by elmore {__version__}."
    return "\n\n".join([f"---\n{yaml}---", title, *parts, end]) + "\n"


def _task_card(path: Path, name: str) -> str:
    content = read_task(path)
    tags = content.task == "tag"
    head = {
        "library_name": "elmore",
        "pipeline_tag": "token-classification" if tags else "text-classification",
        "tags": [*_TAGS, content.task],
    }
    load = "tagger" if tags else "classifier"
    facts = (path / FACTS).read_text(encoding="utf-8")
    code = f'import elmore\nmodel = elmore.{load}("{name}")'
    return _card(head, name, [f"```python\n{code}\n```", f"## Facts\n\n```json\n{facts}```"])


def _facts(checkpoint: Checkpoint, licence: str | None) -> Iterator[tuple[str, object]]:
    config = checkpoint.config
    lstm, tokens = config.lstm, config.tokens
    yield "licence", licence or "not stated"
    yield "parameters", f"{count_parameters(config):,}"
    yield "layers", f"{config.n_layers}, the token layer included; vectors of {config.dim} numbers"
    yield "LSTM", f"{lstm.dim} cells, {lstm.projection_dim} dimensions per direction"
    kinds = {"characters": tokens.n_characters, "a table of words": tokens.n_words}
    yield "words come in as", " and ".join(kind for kind, there in kinds.items() if there)
    yield "tokens", f"`{checkpoint.tokenizer}`"
    if checkpoint.softmax is not None:
        yield "predicts", f"{checkpoint.softmax.n_words:,} words"
    yield "stored as", checkpoint.precision
    loss = checkpoint.notes.get("training", {}).get("heldout_loss")
    if loss is not None:
        yield "held-out perplexity", f"{math.exp(loss):.1f}, mean of the directions, while training"


def _table(rows: Iterator[tuple[str, object]]) -> str:
    # A bar would start another cell, a line end another row.
    cells = ((name, str(value).replace("|", "\\|").replace("\n", " ")) for name, value in rows)
    return "| | |\n|---|---|\n" + "\n".join(f"| {name} | {value} |" for name, value in cells)


def _repository(repository: str) -> str:
    name = repository.removeprefix("hf://")
    if not is_hugging_face(name) or "@" in name:
        raise ConfigError(f"'{shown(repository)}' is not a name on the hub; write owner/name")
    return name


def _run(model: object) -> Run | None:
    """The training run that something is, or None."""
    if isinstance(model, Run):
        return model
    if isinstance(model, str | Path) and Path(model, "recipe.json").is_file():
        return Run.open(model)
    return None


def _checkpoint(model: Any, run: Run | None) -> Checkpoint:
    if run is not None:
        return read_checkpoint(run.model_path())
    if model is None or isinstance(model, str | Path | tuple):
        return read_checkpoint(bundled_model() if model is None else model)
    checkpoint: Checkpoint = model.checkpoint
    return checkpoint


@contextlib.contextmanager
def _folder(model: Any) -> Iterator[Path]:
    """A complete and checked folder of any model or task, a temporary one if need be."""
    run = _run(model)
    path = run.model_path() if run is not None else model
    with tempfile.TemporaryDirectory() as temporary:
        written = Path(temporary, "model")
        if isinstance(model, str | Path) and Path(model).is_dir() and (task := find_task(model)):
            yield task
        elif hasattr(model, "predict_examples"):
            model.save(written)
            yield written
        else:
            checkpoint = _checkpoint(model, run)  # reading compares every file with the manifest
            if isinstance(path, str | Path) and elmore_folder.is_folder(Path(path)):
                yield Path(path)
            else:
                elmore_folder.write(checkpoint, written, precision=checkpoint.precision)
                yield written
