"""From names and paths to formats."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_models import DATA, make_options, write_pair

from elmore.embedding.load import open_model, read_checkpoint
from elmore.errors import ElmoreError, FormatError, ModelNotFound
from elmore.formats import (
    allennlp_archive,
    allennlp_hdf5,
    elmore_folder,
    manylangs_folder,
    tf1,
)
from elmore.formats.detect import detect, open_source
from elmore.published.catalog import INCLUDED, catalog


def test_formats_are_told_apart_by_their_files(tiny_folder: Path, tmp_path: Path) -> None:
    write_pair(tmp_path / "pair", make_options())
    with open_source(tiny_folder) as source:
        assert detect(source) is elmore_folder
    with open_source(tmp_path / "pair") as source:
        assert detect(source) is allennlp_hdf5
    for name, form in {
        "tf1_characters": tf1,
        "tf1_hub": tf1,
        "manylangs_both": manylangs_folder,
        "allennlp_tagger.tar.gz": allennlp_archive,
    }.items():
        with open_source(DATA / name) as source:
            assert detect(source) is form


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "is not a known model .found nothing.; expected config.json"),
        (["a.txt", "b.txt"], "found a.txt, b.txt"),
        ([f"file{k}.txt" for k in range(30)], "is not a known model"),
        (["my_options.json"], r"found my_options.json.; expected .* options.json with \*.hdf5"),
        (["config.json"], "is not a known model"),
    ],
)
def test_unknown_folders(files: list[str], message: str, tmp_path: Path) -> None:
    path = tmp_path / "unknown"
    path.mkdir()
    for name in files:
        (path / name).write_text("{}")
    with pytest.raises(FormatError, match=message) as caught:
        read_checkpoint(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) <= 300


@pytest.mark.parametrize(
    "path", ["/no/such/model", "./nothing", "nothing.zip", Path("original"), "a/b"]
)
def test_paths_that_do_not_exist(path: str | Path) -> None:
    with pytest.raises(ModelNotFound, match="does not exist") as caught:
        open_model(path)
    assert isinstance(caught.value, FileNotFoundError)


def test_names() -> None:
    with pytest.raises(ModelNotFound, match=r"did you mean original-5\.5b or original"):
        open_model("original-5.5")
    for name in catalog().keys() - set(INCLUDED):
        with pytest.raises(ModelNotFound, match=f"'{name}' is not on this machine"):
            open_model(name)


@pytest.mark.parametrize("name", ["x" * 5000, "a/" * 3000, "/proc/self/mem"])
def test_paths_that_the_system_refuses(name: str) -> None:
    if name.startswith("/proc") and not Path(name).exists():
        pytest.skip("there is no /proc here")
    for model in (name, Path(name), (name, name)):
        with pytest.raises(ElmoreError) as caught:
            read_checkpoint(model)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) <= 300
