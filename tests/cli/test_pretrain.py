"""`elmore pretrain`, in this process and in one of its own."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_models import posix
from small_training import SMALL, digest, small_data

from elmore.training.run import Run, load_state

SETTINGS = {**SMALL, "run.save_minutes": 1000, "schedule.tokens": 300}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_data(tmp_path_factory.mktemp("corpus")).folder


def flags(**settings: object) -> list[str]:
    """The recipe `tiny` with everything small."""
    both = {**SETTINGS, **{k.replace("__", "."): v for k, v in settings.items()}}
    parts = ["--recipe", "tiny", "--threads", "1"]
    for key, value in both.items():
        parts += ["--set", f"{key}={value}"]
    return parts


def test_a_training_from_end_to_end(cli, data, tmp_path):
    out = tmp_path / "run"
    done = cli("pretrain", data, "-o", out, *flags())
    assert done.code == 0
    assert done.out == ""
    lines = done.err.splitlines()
    assert "tokens: training perplexity" in lines[1]
    assert "tokens/s" in lines[1]
    assert any("held-out perplexity" in line for line in lines[:-1])
    pattern = rf"trained {out}, held-out perplexity \S+ \(without <UNK> \S+; \S+% of the words are "
    [last] = [line for line in lines if line.startswith("trained")]
    assert re.match(pattern, last)
    assert last.endswith(f"the model is in {out}/checkpoint")
    vectors = cli("embed", "--model", out / "checkpoint", "--tokenized", stdin=b"wa wb zz\n")
    assert vectors.code == 0
    assert vectors.records()[0]["tokens"] == ["wa", "wb", "zz"]

    again = cli("pretrain", data, "-o", out, *flags())
    assert again.code == 1
    assert "--resume" in again.err
    assert again.err.count("\n") == 1

    more = cli(
        "pretrain", data, "-o", out, *flags(schedule__tokens=500), "--resume", "-q", "--json"
    )
    assert more.code == 0
    assert more.err == ""
    report = json.loads(more.out)
    assert report["run"] == str(out)
    assert report["heldout"]["perplexity"] > 1
    assert Run(out).log()[-1]["tokens"] >= 500

    seen = Run(out).log()[-1]["tokens"]
    end = cli(
        "pretrain", data, "-o", out, *flags(schedule__tokens=500), "--resume", "--finish", 200, "-q"
    )
    assert end.code == 0, end.err
    rates = [line["lr"] for line in Run(out).log() if "lr" in line and line["tokens"] > seen]
    assert len(rates) > 2
    assert rates == sorted(rates, reverse=True)
    assert Run(out).log()[-1]["tokens"] >= seen + 200


def test_without_a_recipe_the_run_fits_the_data(cli, data, tmp_path):
    out, free = (
        tmp_path / "run",
        ("schedule.tokens", "schedule.warmup_tokens", "run.evaluate_tokens"),
    )
    parts = ["--threads", "1"]
    for key, value in SETTINGS.items():
        parts += [] if key in free else ["--set", f"{key}={value}"]
    done = cli("pretrain", data, "-o", out, *parts)
    assert done.code == 0, done.err
    recipe = Run(out).recipe
    first = done.err.splitlines()[0]
    assert first.startswith("recipe laptop, fitted to ")
    assert f"schedule.epochs={recipe.schedule.epochs:g}, " in first
    assert f"schedule.warmup_tokens={recipe.schedule.warmup_tokens}, " in first
    assert sum("heldout" in line for line in Run(out).log()) >= 15
    rates = [line["lr"] for line in Run(out).log() if "lr" in line]
    assert max(rates) == recipe.optimizer.lr  # the warm-up came to its end
    before = digest(out)
    again = cli("pretrain", data, "-o", out, "--resume", "--threads", "1")  # no key is needed
    assert (again.code, digest(out)) == (0, before)


def test_many_unknown_words_are_warned_about_and_drawn(cli, tmp_path):
    """Five words of twenty are known: <UNK> is the easiest word of all."""
    data, out = small_data(tmp_path, vocabulary=8).folder, tmp_path / "run"
    done = cli("pretrain", data, "-o", out, *flags())
    assert done.code == 0
    assert re.search(r"\nelmore: warning: \d\d% of the words are not in the vocabulary", done.err)
    assert "quote the one without <UNK>" in done.err
    last = Run(out).log()[-1]["heldout"]
    assert last["oov_rate"] > 0.1
    assert last["without_unknown"] > 1
    picture = (out / "curve.svg").read_text()
    assert f"without &lt;UNK&gt; {last['without_unknown']:.1f};" in picture
    texts = [tmp_path / "text.txt", "--model", out / "best"]
    tuned = cli("fine-tune", *texts, "-o", tmp_path / "b", *flags())
    assert tuned.code == 0, tuned.err
    assert "of the words are <UNK>)" in tuned.err
    assert "elmore: warning: " in tuned.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "optimizer.leaning=1"], "unknown key 'leaning'"),
        (["--set", "optimizer.lr"], "has no value; write KEY=VALUE"),
        (["--recipe", "tinny"], "did you mean 'tiny'"),
    ],
)
def test_misuse(cli, data, tmp_path, arguments, message):
    done = cli("pretrain", data, "-o", tmp_path / "run", "--recipe", "tiny", *arguments)
    assert done.code == 2, done.err
    assert message in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_folders_that_do_not_fit(cli, data, tmp_path):
    done = cli("pretrain", data, "-o", tmp_path / "run", *flags(), "--resume", "--finish", "10")
    assert (done.code, "holds no training run" in done.err) == (1, True)
    assert cli("pretrain", data, "-o", tmp_path / "run", *flags(), "-q").code == 0
    done = cli("pretrain", data, "-o", tmp_path / "run", *flags(model__dim=10), "--resume")
    assert (done.code, "model.dim=12, not 10" in done.err) == (1, True)
    done = cli("pretrain", data, "-o", tmp_path / "run", *flags(), "--resume", "--seed", "1")
    assert (done.code, "seed='0', not '1'" in done.err) == (1, True)
    assert done.err.count("\n") == 1


def endless(**settings: object) -> list[str]:
    """A rate that does not know how long the run is."""
    steady = {"schedule__decay": "constant", "run__evaluate_tokens": 0}
    return flags(**{**steady, "schedule__tokens": 10**7, **settings})


def start(data: Path, out: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "elmore", "pretrain", str(data), "-o", str(out)]
    return subprocess.Popen(
        [*command, *endless(), *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for(process: subprocess.Popen[str], out: Path, tokens: int) -> None:
    deadline = time.monotonic() + 240  # on a busy machine the start alone takes a minute
    while not (log := Run(out).log()) or log[-1]["tokens"] < tokens:
        if time.monotonic() > deadline:
            process.kill()  # or the test would wait for it without end
            pytest.fail("the run did not begin")
        time.sleep(0.02)


@posix
def test_signals_save_and_end_it_by_the_signal(cli, data, tmp_path):
    out = tmp_path / "run"
    for number, more in ((signal.SIGTERM, []), (signal.SIGINT, ["--resume"])):
        seen = Run(out).log()[-1]["tokens"] if out.exists() else 0
        with start(data, out, *more) as process:
            wait_for(process, out, seen + 200)
            if number == signal.SIGTERM:  # the folder is taken
                other = cli("pretrain", data, "-o", out, *flags(), "--resume")
                assert other.code == 1
                assert "in use by another process;" in other.err
                assert other.err.count("\n") == 1
            process.send_signal(number)
            _, err = process.communicate(timeout=60)
        assert process.returncode == -number
        assert "Traceback" not in err
        last = err.splitlines()[-1]
        assert last.startswith(f"elmore: stopped by {number.name} after step ")
        assert last.endswith("; resume it with --resume")
        state = load_state(out / "resume")
        assert state is not None
        assert state[1]["step"] == Run(out).log()[-1]["step"]
    # What was stopped twice equals what never was.
    tokens = Run(out).log()[-1]["tokens"] + 100
    for place, more in ((out, ["--resume"]), (tmp_path / "whole", [])):
        done = cli("pretrain", data, "-o", place, *endless(schedule__tokens=tokens), *more, "-q")
        assert done.code == 0, done.err
    assert digest(out) == digest(tmp_path / "whole")


def test_force_replaces_a_run(cli, data, tmp_path):
    out = tmp_path / "run"
    assert cli("pretrain", data, "-o", out, *flags(), "-q").code == 0
    before = digest(out)
    done = cli("pretrain", data, "-o", out, *flags(), "--seed", 1, "--force", "-q")
    assert (done.code, done.err) == (0, "")
    assert digest(out) != before
    text, tuned = tmp_path / "text.txt", tmp_path / "tuned"
    text.write_text("wa wb\n" * 60)
    base = ["fine-tune", text, "--model", out / "best", "-o", tuned, *flags()]
    said = cli(*base).err
    assert f"fine-tuning {out / 'best'}" in said
    assert "--resume" in cli(*base).err
    assert cli(*base, "--force", "-q").err == ""
    both = cli(*base, "--force", "--resume")
    assert (both.code, "exclude each other" in both.err) == (2, True)


def test_a_plan(cli, data, tmp_path):
    done = cli("pretrain", data, "--plan", *flags(schedule__tokens=900))
    assert (done.code, done.err) == (0, "")
    names = [line.split()[0] for line in done.out.splitlines()]
    assert names[:9] == "recipe data model run speed time memory disk perplexity".split()
    report = json.loads(cli("pretrain", data, "--plan", "--json", *flags()).out)
    assert report["total_tokens"] == 300
    run = cli("pretrain", data, "-o", tmp_path / "run", *flags())
    assert run.err.startswith("plan: 300 tokens at ")
    assert run.err.count("plan:") == 1


def test_recipes(cli):
    assert {"laptop", "tiny", "ner-paper"} <= set(
        json.loads(cli("pretrain", "--recipes", "--json").out)
    )
    assert "laptop  " in cli("pretrain", "--recipes").out
    assert "[optimizer]" in cli("pretrain", "--show-recipe", "laptop").out
