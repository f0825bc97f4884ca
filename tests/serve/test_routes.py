"""Answers are the library's answers."""

from __future__ import annotations

import base64
import io
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_models import SENTENCES, TEXT
from small_tasks import make, write_data
from starlette.testclient import TestClient

from elmore import Elmo, score, substitutes
from elmore.language_model.explore import explore
from elmore.senses import sense_vectors
from elmore.serve.bodies import JSON, NPZ
from elmore.tasks.own.light import classifier, tagger
from elmore.text.tokenizer import Sentence
from serve.running import check_fields, serving

TEXTS = ["The outbreaks occurred .", "", "She fell, and it rained.", "naïve 🦊"]
CHOICES: list[tuple[Any, str | None]] = [
    ("mean", None),
    ([0.2, 0.3, 0.5], None),
    ("all", None),
    (2, "max"),
    ("all", "last"),
]


def expected(elmo: Elmo, sentences: list[list[str]], layers: Any, pooling: Any) -> list[np.ndarray]:
    if layers == "all":
        values = [found.values for found in elmo.layers(sentences, tokenized=True)]
        return values if pooling is None else [v[:, -1] if v.shape[1] else v.sum(1) for v in values]
    if pooling is None:
        return elmo.embed(sentences, layers=layers, tokenized=True)
    return list(elmo.encode(sentences, pool=pooling, layers=layers, tokenized=True))


def post(client: TestClient, path: str, body: Any, accept: str = JSON) -> Any:
    response = client.post(path, json=body, headers={"Accept": accept})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == accept
    return response.json() if accept == JSON else response.content


@pytest.mark.parametrize(("layers", "pooling"), CHOICES)
def test_embed_in_two_types(client: TestClient, lm: Elmo, layers: Any, pooling: str | None) -> None:
    body = {"tokens": SENTENCES, "layers": layers, "pooling": pooling}
    wanted = expected(lm, SENTENCES, layers, pooling)
    key = "layers" if layers == "all" else "vector" if pooling else "vectors"
    answer = post(client, "/v1/embed", body)
    assert (answer["model"], answer["dim"]) == ("small", lm.dim)
    assert [result["tokens"] for result in answer["results"]] == SENTENCES
    for result, vectors in zip(answer["results"], wanted, strict=True):
        found = np.array(result[key], np.float32).reshape(vectors.shape)
        np.testing.assert_allclose(found, vectors, atol=1e-5)
        assert set(result) == {"tokens", key}

    with np.load(io.BytesIO(post(client, "/v1/embed", body, NPZ))) as arrays:
        names = ["vectors"] if pooling else [str(k) for k in range(len(SENTENCES))]
        assert arrays.files == names
        packed = list(arrays["vectors"]) if pooling else [arrays[name] for name in names]
    for found, vectors in zip(packed, wanted, strict=True):
        np.testing.assert_allclose(found, vectors, atol=1e-5)


def test_embed_texts_with_spans(client: TestClient, lm: Elmo) -> None:
    results = post(client, "/v1/embed", {"sentences": TEXTS})["results"]
    for text, result, layered in zip(TEXTS, results, lm.layers(TEXTS), strict=True):
        assert tuple(result["tokens"]) == layered.tokens
        assert [tuple(span) for span in result["spans"]] == list(layered.spans or ())
        assert all(start < end <= len(text) for start, end in result["spans"])
        found = np.array(result["vectors"], np.float32).reshape(len(layered), lm.dim)
        np.testing.assert_allclose(found, layered.mix(), atol=1e-5)
    for accept in (JSON, NPZ):
        post(client, "/v1/embed", {"sentences": []}, accept)
        post(client, "/v1/embed", {"sentences": [], "pooling": "mean"}, accept)


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("*/*", JSON),
        ("text/html, application/x-npz;q=0.5, */*;q=0.1", NPZ),
        ("text/html, image/png;q=0.3", None),
    ],
)
def test_the_accept_header(client: TestClient, accept: str, kind: str | None) -> None:
    response = client.post("/v1/embed", json={"sentences": ["a"]}, headers={"Accept": accept})
    assert response.headers["content-type"] == (kind or JSON)
    if kind is None:
        assert response.status_code == 406
        assert response.json()["error"]["type"] == "not_acceptable"


def test_openai_shape(client: TestClient, lm: Elmo) -> None:
    wanted = lm.encode(TEXTS)
    body = {"input": TEXTS, "model": "text-embedding-3-small", "user": "me", "unknown": 1}
    answer = post(client, "/v1/embeddings", body)
    assert (answer["object"], answer["model"]) == ("list", "small")
    assert [entry["index"] for entry in answer["data"]] == [0, 1, 2, 3]
    np.testing.assert_allclose([entry["embedding"] for entry in answer["data"]], wanted, atol=1e-6)
    count = sum(len(lm.tokenize(text)) for text in TEXTS)
    assert answer["usage"] == {"prompt_tokens": count, "total_tokens": count}
    packed = post(client, "/v1/embeddings", {**body, "encoding_format": "base64"})["data"]
    found = [np.frombuffer(base64.b64decode(entry["embedding"]), "<f4") for entry in packed]
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    [alone] = post(client, "/v1/embeddings", {"input": TEXTS[2], "dimensions": lm.dim})["data"]
    np.testing.assert_allclose(alone["embedding"], wanted[2], atol=1e-6)


def test_openai_clients_send_many_inputs(lm: Elmo) -> None:
    """In parts within the limits of other requests; up to the 2,048 that OpenAI takes."""
    texts = [f"It fell {k} times ." for k in range(2048)]
    with serving(lm, sentences=100, tokens=600) as client:
        answer = post(client, "/v1/embeddings", {"input": texts, "encoding_format": "base64"})
        found = [np.frombuffer(base64.b64decode(d["embedding"]), "<f4") for d in answer["data"]]
        np.testing.assert_allclose(found, lm.encode(texts), atol=1e-6)
        assert answer["usage"]["total_tokens"] == 5 * 2048
        assert client.post("/v1/embeddings", json={"input": [*texts, ""]}).status_code == 422
        long = client.post("/v1/embeddings", json={"input": ["a " * 601]})
        assert (long.status_code, long.json()["error"]["param"]) == (422, "input")
        for ids in ([1, 2], [[1, 2], [3]]):
            refused = client.post("/v1/embeddings", json={"input": ids})
            assert refused.status_code == 400
            assert "send text" in refused.json()["error"]["message"]


def test_score(client: TestClient, lm: Elmo) -> None:
    sentences = [list(TEXT[:9]), [], ["the", "zzz"]]
    body = {"tokens": sentences, "per_token": True}
    results = post(client, "/v1/score", body)["results"]
    for result, wanted in zip(results, score(lm, sentences, tokenized=True), strict=True):
        assert result["log_prob"] == pytest.approx(wanted.total, abs=1e-5)
        assert result["forward_log_prob"] == pytest.approx(wanted.forward_total, abs=1e-5)
        assert result["perplexity"] == pytest.approx(wanted.perplexity, rel=1e-5)
        np.testing.assert_allclose(result["forward"], wanted.forward, atol=1e-5)
        np.testing.assert_allclose(result["backward"], wanted.backward, atol=1e-5)
        assert result["unknown"] == wanted.unknown.tolist()
        assert (result["end"], result["begin"]) == pytest.approx((wanted.end, wanted.begin))
    assert "forward" not in post(client, "/v1/score", {"tokens": sentences})["results"][0]


def test_substitutes(client: TestClient, lm: Elmo) -> None:
    sentences, positions = [list(TEXT[:9]), list(TEXT[3:5])], [4, 1]
    body = {"tokens": sentences, "positions": positions, "k": 3}
    results = post(client, "/v1/substitutes", body)["results"]
    for tokens, place, result in zip(sentences, positions, results, strict=True):
        assert (result["position"], result["token"]) == (place, tokens[place])
        wanted = substitutes(lm, tokens, place, 3)
        assert [word["word"] for word in result["words"]] == [word for word, _ in wanted]
        values = [word["log_prob"] for word in result["words"]]
        np.testing.assert_allclose(values, [value for _, value in wanted], atol=1e-5)


def test_senses(client: TestClient, lm: Elmo) -> None:
    sentences = [list(TEXT[:9]), list(TEXT[3:5]), []]
    body = {"tokens": sentences, "positions": [[4, 0], [], []], "k": 3}
    first, *others = post(client, "/v1/senses", body)["results"]
    wanted = sense_vectors(lm, [(Sentence(tuple(sentences[0])), place) for place in (4, 0)])
    for row, (place, result) in enumerate(zip((4, 0), first["places"], strict=True)):
        assert (result["position"], result["token"]) == (place, sentences[0][place])
        words = [
            (word["word"], pytest.approx(word["weight"], abs=1e-4)) for word in result["words"]
        ]
        assert words == wanted.words(row, 3)
    assert [one["places"] for one in others] == [[], []]
    every = post(client, "/v1/senses", {"tokens": sentences})["results"]
    assert [len(one["places"]) for one in every] == [9, 2, 0]
    dense = post(client, "/v1/embed", {"tokens": sentences, "view": "senses"})
    assert dense["dim"] == len(dense["results"][0]["vectors"][0]) == lm.config.lstm.projection_dim
    vectors = np.asarray(dense["results"][0]["vectors"])[[4, 0]]
    np.testing.assert_allclose(vectors, wanted.dense(), atol=1e-4)
    with serving(lm, tokens=3) as small:
        asked = {"tokens": [["It"]], "positions": [[0] * 4]}
        assert small.post("/v1/senses", json=asked).json()["error"]["param"] == "positions"


def test_explore_is_that_of_a_notebook(client: TestClient, lm: Elmo) -> None:
    sentences = ["The bank fell .", "A bank , the Bank .", "Nothing ."]
    found = post(client, "/v1/explore", {"sentences": sentences})
    assert found == json.loads(json.dumps({**explore(lm, sentences).answer, "model": "small"}))
    nowhere = post(client, "/v1/explore", {"sentences": sentences, "word": "xyz"})
    assert (nowhere["uses"], nowhere["products"], nowhere["senses"]) == ([], [], [])
    assert post(client, "/v1/explore", {"sentences": ["One of each ."]})["word"] is None


def test_a_model_without_a_softmax_says_so(tiny_elmo: Elmo) -> None:
    cases: list[tuple[str, dict[str, Any]]] = [
        ("/v1/score", {}),
        ("/v1/substitutes", {"positions": [0]}),
        ("/v1/senses", {}),
        ("/v1/embed", {"view": "senses"}),
    ]
    with serving(tiny_elmo) as client:
        for path, extra in cases:
            response = client.post(path, json={"sentences": ["a"], **extra})
            assert response.status_code == 422
            assert "no softmax" in response.json()["error"]["message"]
        assert client.get("/v1/models").json()["data"][0]["language_model"] is False
        explored = client.post("/v1/explore", json={"sentences": ["a a"]}).json()
        assert (explored["language_model"], explored["senses"]) == (False, None)
        assert len(explored["products"]) == 2


def test_state(client: TestClient, lm: Elmo) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").json() == {"status": "ready"}
    [model] = client.get("/v1/models").json()["data"]
    assert (model["id"], model["dim"], model["n_layers"]) == ("small", lm.dim, lm.n_layers)
    text = client.get("/metrics").text
    assert 'elmore_requests_total{route="/health",status="200"}' in text
    assert "elmore_waiting_tokens 0.0" in text


def test_every_example_of_the_description_works(client: TestClient) -> None:
    description = client.get("/openapi.json").json()
    schemas = description["components"]["schemas"]
    tried = 0
    for path, methods in description["paths"].items():
        if "post" not in methods or "{" in path:  # the name of a task, of which there is none here
            continue
        assert {"400", "413", "422", "429", "503"} <= set(methods["post"]["responses"])
        content = methods["post"]["requestBody"]["content"]["application/json"]["schema"]
        examples = schemas[content["$ref"].rpartition("/")[2]]["examples"]
        for example in examples:
            answer = post(client, path, example)
            tried += 1
        described = methods["post"]["responses"]["200"]["content"][JSON]["example"]
        if path != "/v1/embed":  # whose last example asks for other fields
            check_fields(answer, described, path)
    for path in ("/v1/models", "/v1/tasks"):
        described = description["paths"][path]["get"]["responses"]["200"]["content"][JSON]
        check_fields(client.get(path).json(), described["example"], path)
    assert tried >= 7


def test_large_responses_come_in_pieces(client: TestClient, lm: Elmo) -> None:
    tokens = [["It", "fell", str(k), "times", "."] * (6 + k % 2) for k in range(100)]
    wanted = [layers.values for layers in lm.layers(tokens, tokenized=True)]
    assert sum(values.size for values in wanted) > 262_144
    body = {"tokens": tokens, "layers": "all"}
    found = post(client, "/v1/embed", body)
    assert [tuple(result["tokens"]) for result in found["results"]] == [*map(tuple, tokens)]
    for result, values in zip(found["results"], wanted, strict=True):
        np.testing.assert_allclose(result["layers"], values, atol=1e-6)
    with np.load(io.BytesIO(post(client, "/v1/embed", body, NPZ))) as arrays:
        assert arrays.files == [str(k) for k in range(100)]
        for name, values in zip(arrays.files, wanted, strict=True):
            np.testing.assert_array_equal(arrays[name], values)


def test_memory_is_given_back(lm: Elmo, monkeypatch: pytest.MonkeyPatch) -> None:
    given = threading.Event()
    monkeypatch.setattr("elmore.serve.guard.give_back_memory", given.set)
    monkeypatch.setattr("elmore.serve.guard._TRIM_BYTES", 300_000)
    with serving(lm) as client:
        body = {"tokens": [["a"] * 30] * 30, "layers": "all"}  # 346 kB
        assert client.post("/v1/embed", json=body).status_code == 200
        assert given.wait(20)


@pytest.fixture(scope="module")
def task_folders(lm: Elmo, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    place = tmp_path_factory.mktemp("tasks")
    for name in ("tag", "classify"):
        task = make(name, lm, schedule__epochs="2")
        task.fit(write_data(name, place))
        task.save(place / f"my-{name}", with_elmo=False)
    return [str(place / "my-tag"), str(place / "my-classify")]


def test_trained_tasks(lm: Elmo, task_folders: list[str]) -> None:
    texts = ["Ada lives in Rome. It fell.", "", "Bo"]
    settings = {"name": "small", "tasks": tuple(task_folders), "sentences": 3}
    with serving(lm, **settings) as client:
        listed = client.get("/v1/tasks").json()["data"]
        assert [(one["id"], one["task"]) for one in listed] == [
            ("my-tag", "tag"),
            ("my-classify", "classify"),
        ]
        assert listed[1]["labels"] == ["bad", "good"]
        for folder, load in zip(task_folders, (tagger, classifier), strict=True):
            name = Path(folder).name
            wanted = [one.to_json() for one in load(folder, elmo=lm).predict(texts)]
            answer = post(client, f"/v1/tasks/{name}", {"sentences": texts})
            assert answer == {"model": name, "results": wanted}
            tokens = post(client, f"/v1/tasks/{name}", {"tokens": [["Bo"], []]})["results"]
            assert tokens == [wanted[2], wanted[1]]
        missing = client.post("/v1/tasks/nothing", json={"sentences": texts})
        assert missing.status_code == 404
        assert "see /v1/tasks" in missing.json()["error"]["message"]
        many = client.post("/v1/tasks/my-tag", json={"sentences": [*texts, "One more"]})
        assert many.status_code == 422
        label = 'elmore_requests_total{route="/v1/tasks/{name}",status="%d"}'
        metrics = client.get("/metrics").text
        assert f"{label % 200} 4.0" in metrics
        assert f"{label % 404} 1.0" in metrics
    with serving(lm, **settings, tokens=8) as client:
        for name in ("my-tag", "my-classify"):  # texts of two sentences count as both
            refused = client.post(f"/v1/tasks/{name}", json={"sentences": texts})
            assert refused.status_code == 422
            assert "9 tokens, more than the limit of 8" in refused.json()["error"]["message"]


def test_tasks_are_added_to_those_that_are_included(tmp_path: Path) -> None:
    elmo = Elmo.load(threads=1)
    task = make("tag", elmo, schedule__epochs="1")
    task.fit(write_data("tag", tmp_path))
    task.save(tmp_path / "gloss", with_elmo=False)
    with serving(elmo, tasks=(str(tmp_path / "gloss"), "pos")) as client:
        names = [one["id"] for one in client.get("/v1/tasks").json()["data"]]
        assert names == ["pos", "chunk", "sentiment", "sentiment-5", "gloss"]
