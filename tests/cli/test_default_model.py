"""Verbs that are given no model use the one inside the package."""

from __future__ import annotations

import json

from elmore.published.catalog import bundled_model


def test_embed_and_info_use_it(cli, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("A plant grew .\n", encoding="utf-8")
    [record] = cli("embed", text).records()
    [named] = cli("embed", text, "--model", "english").records()
    assert record == named
    described = json.loads(cli("info", "--json").out)
    assert described == json.loads(cli("info", bundled_model(), "--json").out)


def test_fine_tune_still_asks_for_both(cli, tmp_path):
    assert cli("fine-tune", "-o", tmp_path / "run").code == 2
