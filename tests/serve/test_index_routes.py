"""The paths below /v1/index: against the index itself, with limits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from elmore import Elmo
from elmore.language_model.sense_vectors import unit
from elmore.senses import Index, build_index
from elmore.senses.corrections import Step, corrected, corrections_file
from elmore.serve.app import make_app
from elmore.serve.bodies import ServiceError
from elmore.serve.index_routes import IndexRoutes
from elmore.serve.schemas import IndexSensesRequest
from elmore.serve.settings import Settings
from serve.running import check_fields


@pytest.fixture(scope="module")
def client(index: Index) -> Iterator[TestClient]:
    settings = Settings(index_uses=40, index_lines=30)
    with TestClient(
        make_app(index.space.elmo, settings, index=index), base_url="http://localhost"
    ) as client:
        yield client


def post(client: TestClient, path: str, body: Any, status: int = 200) -> Any:
    response = client.post(path, json=body)
    assert response.status_code == status, response.text
    assert "secret-place" not in response.text
    return response.json()


def test_what_the_index_holds(client: TestClient, index: Index) -> None:
    response = client.get("/v1/index")
    assert "secret-place" not in response.text
    assert response.json() == {
        "name": "uses",
        "n_uses": len(index),
        "n_words": 2,
        "words": [{"word": "the", "count": 72}, {"word": "bank", "count": 36}],
        "sources": ["rivers.txt", "money.txt"],
        "fields": [],
    }


def test_groups_of_documents_and_collocates(client: TestClient, index: Index) -> None:
    answer = post(client, "/v1/index/senses", {"word": "bank,bank", "by": "file"})
    assert [group["label"].rpartition("/")[2] for group in answer["groups"]] == [
        "money.txt",
        "rivers.txt",
    ]
    assert sorted(map(sum, zip(*(group["shares"] for group in answer["groups"]), strict=True))) == [
        1,
        1,
    ]
    for row, member in zip(answer["rows"], answer["members"], strict=True):
        assert ("rivers.txt", "money.txt")[1 - member] in index.use(row).source
    assert answer["groups"][0]["per_million"] > 1000
    assert "money" in {word for sense in answer["senses"] for word in sense["near"]}
    some = post(client, "/v1/index/senses", {"word": "bank", "where": ["file!=x"]})
    assert len(some["rows"]) == 36
    assert (some["groups"], set(some["members"])) == ([], {-1})


def test_senses_are_those_of_the_index(client: TestClient, index: Index) -> None:
    answer = post(client, "/v1/index/senses", {"word": "bank"})
    found = index.senses("bank")
    assert [sense["name"] for sense in answer["senses"]] == [list(s.name) for s in found.senses]
    assert [sense["count"] for sense in answer["senses"]] == [18, 18]
    assert {0.0, 1.0} == set(answer["senses"][0]["sources"].values())
    assert answer["senses"][0]["sources"].keys() == {"rivers.txt", "money.txt"}
    for sense in found.senses:
        here = np.flatnonzero(np.array(answer["numbers"]) == sense.number)
        assert sorted(np.array(answer["rows"])[here]) == sorted(sense.rows)
        cosines = np.array(answer["cosines"])[here]
        assert (np.diff(cosines) <= 0).all()  # the most typical first
        assert index.use(answer["rows"][here[0]]).tokens == sense.typical[0].tokens
    # The map is a projection: it keeps distances as well as any plane can.
    points = np.stack([answer["x"], answer["y"]], axis=1)
    vectors = unit(index.vectors(np.array(answer["rows"])))
    centred = vectors - vectors.mean(axis=0)
    values = np.linalg.svd(centred, compute_uv=False)
    np.testing.assert_allclose(np.linalg.norm(points, axis=0), values[:2], rtol=1e-3)
    assert post(client, "/v1/index/senses", {"word": "bank"}) == answer  # from the kept answers
    one = post(client, "/v1/index/senses", {"word": "bank", "max_senses": 1})
    assert len(one["senses"]) == 1


def test_find(client: TestClient, index: Index) -> None:
    text = "She lay on the [bank] of the stream ."
    answer = post(client, "/v1/index/find", {"text": text, "k": 3})
    found = index.find(text, k=3)
    assert answer["query"] == found.query
    assert [hit["row"] for hit in answer["hits"]] == [hit.use.row for hit in found]
    assert [hit["shared"] for hit in answer["hits"]] == [list(hit.shared) for hit in found]
    assert answer["hits"][0]["source"] == "rivers.txt"
    body = {"text": text, "word": "ban*", "unlike": [text], "like": [text], "k": 1}
    assert post(client, "/v1/index/find", body)["hits"][0]["cosine"] == pytest.approx(0, abs=0.01)


def test_a_marked_word_is_a_word_and_has_the_limit(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elmore.serve.index_routes._MAX_SEARCHED", 50)
    with TestClient(
        make_app(index.space.elmo, Settings(), index=index), base_url="http://localhost"
    ) as client:

        def refused(text: str, word: str | None = None) -> str:
            body = {"text": text, "word": word}
            return str(post(client, "/v1/index/find", body, 422)["error"]["message"])

        assert "'*' is not in the index" in refused("a [*]")
        assert "'the' has 72 uses, more than the limit of 50" in refused("[the] bank")
        assert "'*' has 108 uses, more than the limit of 50" in refused("a [bank]", "*")


def test_files_of_the_same_name_are_told_apart(tmp_path: Path, lm: Elmo) -> None:
    texts = {"secret-place/1900/a.txt": 1, "secret-place/2000/a.txt": 3, "secret-place/b.txt": 2}
    for name, n in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("The bank fell .\n" * n, "utf-8")
    files = [tmp_path / name for name in texts]
    index = build_index(files, tmp_path / "uses", model=lm, words=["bank"])
    names = ["1900/a.txt", "2000/a.txt", "b.txt"]
    with TestClient(make_app(lm, Settings(), index=index), base_url="http://localhost") as client:
        assert client.get("/v1/index").json()["sources"] == names
        (sense,) = post(client, "/v1/index/senses", {"word": "bank", "max_senses": 1})["senses"]
        assert sense["sources"] == dict.fromkeys(names, 1.0)
        lines = post(client, "/v1/index/uses", {"rows": [0, 1, 4]})["uses"]
        assert [line["source"] for line in lines] == names


def test_uses(client: TestClient, index: Index) -> None:
    rows = [5, 0, 5]
    lines = post(client, "/v1/index/uses", {"rows": rows})["uses"]
    assert [line["row"] for line in lines] == rows
    use = index.use(0)
    assert (lines[1]["left"], lines[1]["word"], lines[1]["right"]) == use.context(200)
    assert (lines[1]["source"], lines[1]["line"]) == ("rivers.txt", use.line)
    assert post(client, "/v1/index/uses", {"rows": []}) == {"uses": []}


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("senses", {"word": "xyz"}, "'xyz' is not in the index of 2 words"),
        ("senses", {"word": "the"}, "'the' has 72 uses, more than the limit of 40"),
        ("senses", {"word": "/(b+)+$/"}, "regular expressions are not served; use a pattern"),
        ("senses", {"word": "b" * 101}, "100"),
        ("senses", {"word": ""}, "1"),
        ("senses", {"word": "bank,/(b+)+$/"}, "regular expressions are not served"),
        ("senses", {"word": "bank", "by": "colour"}, "has no field 'colour'"),
        ("senses", {"word": "bank", "where": ["file=x"]}, "no document has file=x"),
        ("find", {"text": "a [bank]", "where": ["corpus"]}, "is not a condition"),
        ("senses", {"word": "bank", "max_senses": 0}, "1"),
        ("find", {"text": "no mark"}, "mark one word of 'no mark' with brackets"),
        ("find", {"text": "a [bank]", "word": "/.*/"}, "regular expressions are not served"),
        ("find", {"text": "a [bank]", "k": 1000}, "200"),
        ("find", {"text": "a [bank]", "like": ["a [bank]"] * 11}, "10"),
        ("uses", {"rows": [0] * 31}, "31 rows, more than the limit of 30; send several requests"),
        ("uses", {"rows": [0, 108]}, "rows.1 is 108 but the index has 108 uses; count from 0"),
        ("uses", {"rows": [-1]}, "rows.0 is -1"),
    ],
)
def test_what_is_refused(client: TestClient, path: str, body: Any, message: str) -> None:
    assert message in post(client, f"/v1/index/{path}", body, 422)["error"]["message"]


def test_corrections_while_it_runs(client: TestClient, index: Index) -> None:
    before = post(client, "/v1/index/senses", {"word": "bank"})
    plain = index.senses("bank", corrected=False)
    corrected(plain, [Step(rename=1, name="corrected by hand")])
    after = post(client, "/v1/index/senses", {"word": "bank"})
    assert after["senses"][0]["name"] == ["corrected by hand", *before["senses"][0]["name"]]
    corrections_file(index).write_text("{", "utf-8")
    answer = post(client, "/v1/index/senses", {"word": "bank"}, 500)
    assert answer["error"]["message"] == "the service failed; its log says more"
    corrections_file(index).unlink()
    assert post(client, "/v1/index/senses", {"word": "bank"}) == before


def test_the_description_has_examples_that_work(client: TestClient) -> None:
    description = client.get("/openapi.json").json()
    schemas = description["components"]["schemas"]
    paths = [path for path in description["paths"] if path.startswith("/v1/index/")]
    assert len(paths) == 3
    for path in paths:
        operation = description["paths"][path]["post"]
        content = operation["requestBody"]["content"]["application/json"]["schema"]
        for example in schemas[content["$ref"].rpartition("/")[2]]["examples"]:
            answer = post(client, path, example)
            described = operation["responses"]["200"]["content"]["application/json"]["example"]
            check_fields(answer, described, path)
    described = description["paths"]["/v1/index"]["get"]["responses"]["200"]["content"]
    check_fields(client.get("/v1/index").json(), described["application/json"]["example"], "index")


def test_without_an_index_there_is_none(lm: Elmo) -> None:
    with TestClient(make_app(lm, Settings()), base_url="http://localhost") as client:
        assert client.get("/v1/index").status_code == 404
        assert client.post("/v1/index/uses", json={"rows": [0]}).status_code == 404


def test_too_many_waiting_are_sent_away(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, go = IndexRoutes(index, Settings(request_seconds=0.2)), threading.Event()
    monkeypatch.setattr(corpus, "_senses", lambda _: b"{}" if go.wait(20) else b"")
    body = IndexSensesRequest(word="bank")

    async def crowd() -> list[Any]:
        many = await asyncio.gather(
            *(corpus.senses(body) for _ in range(20)), return_exceptions=True
        )
        go.set()
        return [*many, await corpus.senses(body)]

    *many, last = asyncio.run(crowd())
    statuses = [one.status_code for one in many if isinstance(one, ServiceError)]
    assert (statuses.count(503), statuses.count(429)) == (16, 4)
    assert last.status_code == 200  # those who gave up have left their places
    corpus.close()
