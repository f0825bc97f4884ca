"""`elmore models`: the published models, and which of them are downloaded."""

from __future__ import annotations

import dataclasses

from elmore.cli import options
from elmore.cli.console import Console, fitted
from elmore.errors import ConfigError, ModelNotFound
from elmore.published import hub
from elmore.published.catalog import INCLUDED, Published, catalog, find_published
from elmore.report import aligned

_EXAMPLES = """\
  elmore models --language de
  elmore models --downloaded --json
  elmore models --prune small --prune medium

A name is used like a path: `elmore embed --model small text.txt` downloads the model the first
time. Downloads are in ELMORE_HOME (default: the cache folder of the system). Models that no
program can download are listed in docs/formats.md. A terminal shows the start of long lines; a pipe
gets all of them.
"""
_COLUMNS = ("name", "language", "dim", "MB", "files", "here", "licence", "trained on")
_ALL, _PARTS = "all", "parts"


@options.verb(_EXAMPLES)
def models(
    *,
    language: str | None = options.option("Only models of this language (ISO 639).", "CODE"),
    downloaded: bool = options.flag("Only models that are on this machine."),
    prune: tuple[str, ...] = options.option(
        f"Delete the download of this model, and unfinished downloads; may be repeated; {_ALL} for "
        f"all of them, {_PARTS} for unfinished ones alone.",
        "NAME",
        multiple=True,
    ),
    dry_run: bool = options.flag("With --prune: only list what would be deleted."),
    console: Console,
) -> None:
    if prune:
        if language or downloaded:
            raise ConfigError("--prune takes names; leave --language and --downloaded out")
        _prune(prune, dry_run, console)
        return
    if dry_run:
        raise ConfigError("--dry-run needs --prune; add --prune or leave it out")
    everything = (*INCLUDED.values(), *catalog().values())
    chosen = [model for model in everything if language in (None, model.language)]
    if not chosen:
        known = ", ".join(sorted({model.language for model in everything}))
        raise ModelNotFound(f"there is no model for language {language!r}; use one of {known}")
    if downloaded:
        chosen = [model for model in chosen if _is_here(model)]
    console.result(
        [{**dataclasses.asdict(model), "on_disk": _is_here(model)} for model in chosen],
        fitted(aligned([_COLUMNS, *(_row(model) for model in chosen)])),
    )
    if not console.json:
        console.say(f"downloads: {hub.home()}")


def _prune(names: tuple[str, ...], dry_run: bool, console: Console) -> None:
    named = [find_published(name) for name in names if name not in (_ALL, _PARTS)]
    chosen = None if _ALL in names else named
    gone = hub.prune(chosen, dry_run=dry_run)
    if gone or console.json:
        console.result([str(path) for path in gone], "\n".join(map(str, gone)))
    console.say(f"{'would delete' if dry_run else 'deleted'}: {len(gone)}")


def _is_here(model: Published) -> bool:
    return model.name in INCLUDED or hub.is_downloaded(model)


def _row(model: Published) -> tuple[str, ...]:
    dim, size = ("?" if n is None else str(n) for n in (model.dim, model.megabytes))
    here = "yes" if _is_here(model) else "no"
    facts = (model.form, here, model.licence, model.trained_on)
    return (model.name, model.language, dim, size, *facts)
