"""elmore.senses.index and indexing: what is stored, and what happens when something goes wrong."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from small_models import TEXT, posix

from elmore import Elmo
from elmore.base.atomic import locked
from elmore.errors import ConfigError, ElmoreError, FormatError, InputError, ResumeError
from elmore.senses import Index, build_index, sense_vectors
from elmore.senses.files import IndexFiles
from elmore.senses.parts import draw
from elmore.text.tokenizer import Sentence

LINES = [" ".join(TEXT[k % 40 : k % 40 + 3 + k % 7]) for k in range(60)]


@pytest.fixture(scope="session")
def model(lm: Elmo, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("index") / "model"
    lm.save(path)
    return path


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    first, second = tmp_path / "first.txt", tmp_path / "second.txt"
    first.write_text("\n".join(["", *LINES[:25]]) + "\n", "utf-8")
    second.write_text("\n".join(LINES[25:]) + "\n", "utf-8")
    return [first, second]


def build(files: list[Path], out: Path, model: Path, **settings: object) -> Index:
    settings = {"min_count": 3, "tokenized": True, "shard_bytes": 300, **settings}
    return build_index(files, out, model=model, **settings)  # type: ignore[arg-type]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_every_use_is_there_with_its_sentence(
    files: list[Path], tmp_path: Path, model: Path
) -> None:
    index = build(files, tmp_path / "uses", model)
    counts = Counter(t.lower() for line in LINES for t in line.split() if any(map(str.isalnum, t)))
    assert dict(index.words) == {word: n for word, n in counts.items() if n >= 3}
    assert list(index.words.values()) == sorted(index.words.values(), reverse=True)
    for word, n in index.words.items():
        uses = [index.use(row) for row in index.rows(word)]
        assert len(uses) == n
        assert all(use.tokens[use.position].lower() == word for use in uses)
        for use in uses:
            lines = Path(use.source).read_text("utf-8").splitlines()
            assert lines[use.line - 1].split() == list(use.tokens)
    assert len(index) == sum(index.words.values())
    assert {Path(source) for source in index.sources} == set(files)
    assert not list((tmp_path / "uses").glob("part-*"))


def test_vectors_are_those_of_the_model(
    files: list[Path], tmp_path: Path, model: Path, lm: Elmo
) -> None:
    index = build(files, tmp_path / "uses", model, k=5)
    rows = index.rows("the")
    places = [(Sentence(use.tokens), use.position) for use in map(index.use, rows)]
    expected, stored = sense_vectors(lm, places, k=5), index.substitutes(rows)
    order = np.argsort(expected.ids, axis=1)
    np.testing.assert_array_equal(stored.ids, np.take_along_axis(expected.ids, order, axis=1))
    steps = expected.weights.max(axis=1, keepdims=True) / 255
    weights = np.take_along_axis(expected.weights, order, axis=1)
    assert (np.abs(stored.weights - weights) <= steps).all()
    dense = expected.dense()
    dense /= np.linalg.norm(dense, axis=1, keepdims=True)
    steps = np.abs(dense).max(axis=1, keepdims=True) / 127
    assert (np.abs(index.vectors(rows) - dense) <= 0.51 * steps).all()
    assert stored.words(0, 1) == [
        (expected.words(0, 1)[0][0], pytest.approx(stored.weights[0].max()))
    ]


def test_products_of_any_rows_are_those_of_their_vectors(
    files: list[Path], tmp_path: Path, model: Path
) -> None:
    index = build(files, tmp_path / "uses", model, k=5)
    query = np.random.default_rng(0).normal(size=index.vectors(np.arange(1)).shape[1])
    for rows in ([2, 3, 4], [0, 1, 3], [2, 4, 3, 5], [3, 1, 5], [], [1]):
        some, vector = np.array(rows, np.int64), query.astype(np.float32)
        np.testing.assert_allclose(
            index.products(some, vector), index.vectors(some) @ vector, rtol=1e-4, atol=1e-5
        )


def test_layers_are_kept_if_asked_for(
    files: list[Path], tmp_path: Path, model: Path, lm: Elmo
) -> None:
    plain, index = (
        build(files, tmp_path / "a", model),
        build(files, tmp_path / "b", model, layers=[0, 0.5, 0.5]),
    )
    rows = index.rows("the")
    uses = [index.use(row) for row in rows]
    vectors = lm.embed([use.tokens for use in uses], layers=[0, 0.5, 0.5], tokenized=True)
    wanted = np.stack([one[use.position] for one, use in zip(vectors, uses, strict=True)])
    steps = np.abs(wanted).max(axis=1, keepdims=True) / 127
    assert (np.abs(index.layers(rows) - wanted) <= 0.51 * steps).all()
    np.testing.assert_array_equal(index.vectors(rows), plain.vectors(rows))
    with pytest.raises(ConfigError, match="has no layers; make it with --layers"):
        plain.layers(rows)
    with pytest.raises(ConfigError, match="one mix of layers"):
        build(files, tmp_path / "c", model, layers="all")


def test_without_a_softmax_uses_are_compared_by_layers(
    files: list[Path], tmp_path: Path, lm: Elmo
) -> None:
    Elmo(dataclasses.replace(lm.checkpoint, softmax=None)).save(tmp_path / "without")
    said: list[str] = []
    index = build(files, tmp_path / "uses", tmp_path / "without", report=said.append)
    assert "no softmax" in said[0]
    rows = index.rows("the")
    uses = [index.use(row) for row in rows]
    vectors = lm.embed([use.tokens for use in uses], layers="top", tokenized=True)
    wanted = np.stack([one[use.position] for one, use in zip(vectors, uses, strict=True)])
    wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
    np.testing.assert_allclose(index.vectors(rows), wanted, atol=0.01)
    place = Sentence(uses[3].tokens), uses[3].position
    best = index.find(place, k=1)[0]
    assert best.use.tokens == uses[3].tokens
    assert best.score == pytest.approx(1, abs=1e-3)
    assert best.shared == ()
    assert index.senses("the").senses[0].name == ()


def test_frequent_words_are_sampled_and_bytes_depend_on_nothing_else(
    tmp_path: Path, model: Path
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n".join(LINES * 30), "utf-8")
    one = build([text], tmp_path / "one", model, max_uses=64, shard_bytes=3000)
    build([text], tmp_path / "two", model, max_uses=64, shard_bytes=3000, workers=2)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    everything = build([text], tmp_path / "all", model, max_uses=10_000)
    for word, n in one.words.items():
        kept = {one.use(row)[1:] for row in one.rows(word)}
        assert len(kept) == n or 30 < len(kept) < 100
        assert kept <= {everything.use(row)[1:] for row in everything.rows(word)}
    assert len(one) < len(everything) / 2
    with pytest.raises(ConfigError, match="max_uses=63; use 64 or more"):
        build([text], tmp_path / "few", model, max_uses=63)


def test_draws_are_flat() -> None:
    draws = np.array([draw("bank", k // 7, k % 7) for k in range(4000)], np.float64)
    counts = np.histogram(draws, 8, (0, 2.0**64))[0]
    assert counts.sum() == 4000
    assert counts.min() > 400
    assert counts.max() < 600


def test_a_list_of_words(files: list[Path], tmp_path: Path, model: Path) -> None:
    index = build(files, tmp_path / "uses", model, words=["The", "nowhere", "virus"])
    assert set(index.words) == {"the", "virus"}
    with pytest.raises(InputError, match=r"none of the words occurs in the text \(nowhere\)"):
        build(files, tmp_path / "none", model, words=["nowhere"])
    with pytest.raises(ConfigError, match="the list of words is empty"):
        build(files, tmp_path / "none", model, words=[" "])
    said: list[str] = []
    words = [" virus ", "nowhere", "", "never"]
    index = build(files, tmp_path / "stripped", model, words=words, report=said.append)
    assert list(index.words) == ["virus"]
    assert said[0] == "not in the text: never, nowhere"
    assert list(build(files, tmp_path / "one", model, words="virus").words) == ["virus"]
    with pytest.raises(InputError, match="no word occurs 1000 times"):
        build(files, tmp_path / "none", model, min_count=1000)
    assert not (tmp_path / "none").exists()


class Stop:
    """Interrupts after some sentences."""

    def __init__(self, left: int) -> None:
        self.left = left

    def update(self, n: int) -> None:
        self.left -= n
        if self.left < 0:
            raise KeyboardInterrupt

    def close(self) -> None: ...


def interrupted(files: list[Path], out: Path, model: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        build(files, out, model, progress=Stop(90))


def test_it_resumes_and_recomputes_what_is_damaged(
    files: list[Path], tmp_path: Path, model: Path
) -> None:
    out = tmp_path / "uses"
    interrupted(files, out, model)
    parts = sorted(out.glob("part-*"))
    assert len(parts) >= 2
    with pytest.raises(FormatError, match="not complete; run `elmore index` again"):
        Index.open(out)
    before = parts[0].stat().st_mtime_ns
    data = bytearray(parts[1].read_bytes())
    data[len(data) // 2] ^= 1
    parts[1].write_bytes(data)
    with pytest.raises(ResumeError, match="max_uses=1000, not 500"):
        build(files, out, model, max_uses=500)
    assert parts[0].stat().st_mtime_ns == before
    build(files, out, model)
    build(files, tmp_path / "plain", model)
    assert contents(out) == contents(tmp_path / "plain")
    # A complete index is not computed again.
    build(files, out, model, progress=Stop(0))
    with pytest.raises(ResumeError, match="min_count"):
        build(files, out, model, min_count=4)
    assert len(build(files, out, model, min_count=4, overwrite=True).words) < 40


@posix
def test_a_killed_process_loses_nothing(files: list[Path], tmp_path: Path, model: Path) -> None:
    out = tmp_path / "uses"
    code = f"""
import os, signal
from pathlib import Path
from elmore.senses import build_index
class Kill:
    left = 90
    def update(self, n):
        self.left -= n
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
    def close(self): pass
build_index({[str(f) for f in files]!r}, {str(out)!r}, model={str(model)!r}, min_count=3,
            tokenized=True, shard_bytes=300, progress=Kill())
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    assert list(out.glob("part-*"))
    build([Path(str(f)) for f in files], out, model)
    build(files, tmp_path / "plain", model)
    one, two = contents(out), contents(tmp_path / "plain")
    assert one == two


def test_a_kill_after_the_manifest_costs_nothing(
    files: list[Path], tmp_path: Path, model: Path
) -> None:
    out = tmp_path / "uses"
    build(files, out, model)
    before = contents(out)
    for name in ("part-000000000000.npz", "counts.json", "lock"):
        (out / name).write_bytes(b"left over")
    (out / "journal.jsonl").write_bytes(b"{}\n")
    build(files, out, model, progress=Stop(0))
    assert contents(out) == before


def test_damage_wrong_models_and_second_writers_are_refused(
    files: list[Path], tmp_path: Path, model: Path, lm: Elmo
) -> None:
    out = tmp_path / "uses"
    build(files, out, model)
    with locked(out / "lock", "held"), pytest.raises(ElmoreError, match="being written by another"):
        build(files, out, model)
    (out / "lock").unlink()
    softmax = lm.checkpoint.softmax
    other = Elmo(
        dataclasses.replace(lm.checkpoint, softmax=softmax._replace(bias=softmax.bias + 1))
    )
    with pytest.raises(ConfigError, match="made with another model"):
        Index.open(out, elmo=other).space  # noqa: B018
    other.save(tmp_path / "other")
    with pytest.raises(ResumeError, match="another model"):
        build(files, out, tmp_path / "other")
    without = Elmo(dataclasses.replace(lm.checkpoint, softmax=None))
    without.save(tmp_path / "without")
    with pytest.raises(ResumeError, match="another model"):
        build(files, out, tmp_path / "without")
    IndexFiles(out).verify()
    data = bytearray((out / "uses.npy").read_bytes())
    data[-1] ^= 1
    (out / "uses.npy").write_bytes(data)
    with pytest.raises(FormatError, match=r"uses\.npy.*damaged"):
        IndexFiles(out).verify()
    os.truncate(out / "uses.npy", 200)
    with pytest.raises(FormatError, match=r"uses\.npy.* has 200 bytes"):
        Index.open(out)
    with pytest.raises(FormatError, match="is not an index; make one"):
        Index.open(tmp_path)


def test_words_are_found_by_pattern(files: list[Path], tmp_path: Path, model: Path) -> None:
    index = build(files, tmp_path / "uses", model)
    both = np.concatenate([index.rows("school"), index.rows("systems")])
    np.testing.assert_array_equal(index.rows(["systems", "School"]), np.sort(both))
    np.testing.assert_array_equal(index.rows("/School|systems/"), np.sort(both))
    np.testing.assert_array_equal(index.rows("S*L"), index.rows("s*l"))
    assert set(index.rows("s*")) >= set(both)
    assert len(index.rows("*")) == len(index)
    with pytest.raises(InputError, match="'nowhere' is not in the index"):
        index.rows("nowhere")
    with pytest.warns(UserWarning, match="not in the index: 'nowhere'"):
        np.testing.assert_array_equal(index.rows(["school", "nowhere"]), index.rows("school"))
    with pytest.raises(InputError, match="the list of words is empty"):
        index.rows([])
    for pattern in ("*", "s*", "/school/"):
        with pytest.raises(InputError, match="is not in the index"):
            index.rows(pattern, literal=True)
    with pytest.raises(ConfigError, match=r"'/\(/' is not a pattern"):
        index.rows("/(/")


def test_another_place_of_the_text_is_another_index(tmp_path: Path, model: Path) -> None:
    table = tmp_path / "text.csv"
    table.write_text("a,b\nthe virus,the school\nthe virus,the school\n", "utf-8")
    index = build([table], tmp_path / "uses", model, column="a", min_count=1)
    assert set(index.words) == {"the", "virus"}
    with pytest.raises(ResumeError, match="column=a, not b"):
        build([table], tmp_path / "uses", model, column="b", min_count=1)


@pytest.mark.parametrize(
    ("name", "text", "options", "lines"),
    [
        ("a.csv", 'n,t\n1,"the\nvirus"\n2,the virus\n', {"column": "t"}, [2, 4]),
        ("a.jsonl", '\n{"t": "the virus"}\n\n{"t": ["virus"]}\n', {"column": "t"}, [2, 4]),
        ("a.txt", "the virus\n\udcff\nvirus\n", {"errors": "skip"}, [1, 3]),
        (
            "a.jsonl",
            '{"t": "the virus", "d": "x"}\n{"t": "\udcff"}\n{"t": "virus", "d": "y"}\n',
            {"column": "t", "fields": ["d"], "errors": "skip"},
            [1, 3],
        ),
        ("a.txt", "\n\nA virus .\nA virus .\n", {"split_sentences": True}, [1, 2]),
        (
            "a.conllu",
            "# text\n1\tvirus\t_\tX\t_\t_\t0\t_\t_\t_\n\n" * 2,
            {},
            [2, 5],
        ),
    ],
)
def test_a_use_knows_its_line(
    tmp_path: Path, model: Path, name: str, text: str, options: dict[str, object], lines: list[int]
) -> None:
    (tmp_path / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    index = build(
        [tmp_path / name], tmp_path / "uses", model, words=["virus"], tokenized=False, **options
    )
    assert [index.use(row).line for row in index.rows("virus")] == lines


def test_fields_need_names_of_columns(tmp_path: Path, model: Path) -> None:
    (tmp_path / "a.csv").write_text("t,d\nthe virus,x\n", "utf-8")
    with pytest.raises(ConfigError, match="column=1 expects none; give the name of the column"):
        build([tmp_path / "a.csv"], tmp_path / "uses", model, column=1, fields=["d"])
    assert not (tmp_path / "uses").exists()


@pytest.mark.parametrize("options", [{"precision": "int8"}, {"start": "warm"}])
def test_an_index_is_asked_as_it_was_made(
    files: list[Path], tmp_path: Path, model: Path, options: dict[str, object]
) -> None:
    build(files, tmp_path / "uses", model, **options)
    index = Index.open(tmp_path / "uses", threads=1)
    assert index.space.elmo.engine.compute.threads == 1
    use = index.use(index.rows("school")[0])
    found = index.find((Sentence(use.tokens), use.position), k=1)
    assert found[0].score == pytest.approx(1, abs=0.01)
    os.rename(model, tmp_path / "moved")
    try:
        moved = Index.open(tmp_path / "uses", model=tmp_path / "moved")
        assert moved.find((Sentence(use.tokens), use.position), k=1)[0] == found[0]
    finally:
        os.rename(tmp_path / "moved", model)


def test_an_index_is_opened_where_the_default_is_another(
    files: list[Path], tmp_path: Path, lm: Elmo, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm.save(tmp_path / "int8", precision="int8")
    index = build(files, tmp_path / "uses", tmp_path / "int8")
    use = index.use(index.rows("school")[0])
    monkeypatch.setenv("ELMORE_NATIVE", "0")  # without kernels int8 is no longer the default
    again = Index.open(tmp_path / "uses")
    assert again.find((Sentence(use.tokens), use.position), k=1)[0].score > 0.99
    assert again.space.elmo.precision == index.space.elmo.precision


def test_a_loaded_model_stays_with_its_index(
    files: list[Path], tmp_path: Path, model: Path, lm: Elmo, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Elmo(lm.checkpoint)  # not from a file, so that it has no name
    index = build(files, tmp_path / "a", plain)  # type: ignore[arg-type]
    assert index.space.elmo is plain
    with pytest.raises(ConfigError, match="does not name its model"):
        Index.open(tmp_path / "a").space  # noqa: B018
    monkeypatch.chdir(model.parent)
    build(files, tmp_path / "b", Path(model.name))
    build(files, tmp_path / "c", Elmo.load(model.name))  # type: ignore[arg-type]
    monkeypatch.chdir(tmp_path)
    for name in ("b", "c"):
        assert Index.open(tmp_path / name).find("the [school]", k=1)[0].use.tokens


def test_questions_are_split_as_the_text_was(tmp_path: Path, model: Path, lm: Elmo) -> None:
    text = tmp_path / "text.txt"
    text.write_text("then it fell.\n" * 3, "utf-8")
    spaces, ptb = (Elmo(lm.checkpoint, tokenizer=name) for name in ("spaces", "ptb"))
    cases: list[tuple[object, dict[str, object], str]] = [
        (model, {}, "fell"),  # the convention of this model is "ptb"
        (model, {"tokenized": True}, "fell."),
        (model, {"tokenizer": "spaces"}, "fell."),
        (model, {"tokenizer": "ptb"}, "fell"),
        (spaces, {}, "fell."),
        (ptb, {}, "fell"),
        (ptb, {"tokenizer": "spaces"}, "fell."),
    ]
    for number, (maker, options, word) in enumerate(cases):
        out = tmp_path / str(number)
        settings = {"tokenized": False, "words": word, **options}
        build([text], out, maker, **settings)  # type: ignore[arg-type]
        for asking in (spaces, ptb):  # no matter how a model that is passed splits text
            index = Index.open(out, elmo=asking)
            assert index.tokenize("It fell.").tokens[1] == word
            question = f"then it [{word}]{'fell.'.removeprefix(word)}"
            assert index.find(question, k=1)[0].score == pytest.approx(1, abs=0.01)


def test_force_removes_nothing_that_is_needed(
    files: list[Path], tmp_path: Path, model: Path
) -> None:
    out = tmp_path / "uses"
    build(files, out, model)
    before = contents(out)
    with pytest.raises(InputError, match="none of the words"):
        build(files, out, model, words=["nowhere"], overwrite=True)
    assert contents(out) == before
    for name in ("mine.npy", "vectors.npy"):
        other = tmp_path / name.partition(".")[0]
        other.mkdir()
        (other / name).write_bytes(b"mine")
        (other / "manifest.json").write_text('{"format": "other"}', "utf-8")
        with pytest.raises(ConfigError, match="choose another name or empty it"):
            build(files, other, model, overwrite=True)
        assert set(contents(other)) == {name, "manifest.json"}
    (out / "mine.npy").write_bytes(b"mine")
    with pytest.raises(ConfigError, match="files that elmore did not write"):
        build(files, out, model, words=["virus"], overwrite=True)
    assert (out / "mine.npy").read_bytes() == b"mine"
