"""`elmore recipes`."""

from __future__ import annotations

import json
import tomllib

from elmore.training.bilm.recipe_files import recipe_names, recipe_text, task_recipe_names


def test_list(cli):
    for arguments in (["recipes"], ["recipes", "list"], ["recipes", "-v", "list"]):
        done = cli(*arguments)
        assert done.code == 0
        assert [line.split()[0] for line in done.out.splitlines()] == [
            *recipe_names(),
            *task_recipe_names(),
        ]
        assert "a minute" in done.out
        assert not done.err
    named = json.loads(cli("recipes", "--json").out)
    assert list(named) == [*recipe_names(), *task_recipe_names()]
    assert not any(text.startswith("#") for text in named.values())


def test_show_gives_a_file_to_start_from(cli, tmp_path):
    done = cli("recipes", "show", "tiny")
    assert done.code == 0
    assert done.out == recipe_text("tiny")
    assert tomllib.loads(done.out)["model"]["dim"] == 128


def test_misuse(cli):
    for arguments, message in (
        (["show"], "name the recipe to show: one of"),
        (["show", "tinny"], "did you mean 'tiny'"),
        (["shwo"], "invalid choice"),
        (["list", "tiny"], "unknown argument 'tiny' of recipes list"),
        (["show", "tiny", "--json"], "--json is for list; leave it out for show"),
    ):
        done = cli("recipes", *arguments)
        assert done.code == 2
        assert done.out == ""
        assert message in done.err
        assert done.err.count("\n") == 1
