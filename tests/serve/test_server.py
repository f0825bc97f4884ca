"""A real process: signals, clients that vanish, dawdle or send half."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from small_models import posix

from elmore import Elmo
from serve.running import Running, start, start_verb

HEAD = b"POST /v1/embed HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


def request(body: dict[str, object]) -> bytes:
    """A request of /v1/embed, with its head."""
    data = json.dumps(body, separators=(",", ":")).encode()
    return HEAD + f"Content-Length: {len(data)}\r\n\r\n".encode() + data


def received(connection: socket.socket) -> bytes:
    """Read until the other side closes."""
    parts = []
    try:
        while part := connection.recv(65_536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def answered(connection: socket.socket) -> tuple[int, bytes]:
    """Read one answer of a connection that may stay open."""
    response = http.client.HTTPResponse(connection)
    try:
        response.begin()
        return response.status, response.read()
    finally:
        response.close()


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def is_closed(connection: socket.socket) -> bool:
    """Whether the other side has closed an idle connection."""
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def well(running: Running) -> None:
    code, answer = running.ask("/v1/embed", {"sentences": ["It is well ."]})
    assert code == 200
    assert answer["results"]


def test_a_slow_sender_is_told_and_dropped(running: Running) -> None:
    with running.connect() as connection:
        connection.sendall(HEAD + b'Content-Length: 1000\r\n\r\n{"sentences"')
        answer = received(connection)
    assert status(answer) == 408
    assert b'"type":"timeout"' in answer
    assert b"connection: close" in answer.lower()
    well(running)


def test_a_head_that_never_ends_is_dropped(running: Running) -> None:
    idle = running.connect()
    slow = running.connect()
    begin = time.monotonic()
    slow.sendall(b"POST /v1/embed HTTP/1.1\r\nHost: x\r\nX-Slow: ")
    for _ in range(3):
        time.sleep(0.1)
        slow.sendall(b"x")
    assert received(slow) == b""
    assert received(idle) == b""
    assert time.monotonic() - begin < 30
    idle.close()
    slow.close()
    well(running)


def test_a_kept_connection_takes_several_requests(running: Running) -> None:
    with running.connect() as connection:
        for _ in range(3):
            connection.sendall(request({"sentences": ["a"]}))
            assert answered(connection)[0] == 200
            time.sleep(0.7)  # longer than a head may take, shorter than a connection may be idle


@pytest.mark.parametrize("declared", [True, False])
def test_ten_megabytes(running: Running, declared: bool) -> None:
    """The client sees the refusal, though it sends everything first."""
    chunk = b" " * (1 << 16)
    with running.connect() as connection:
        length = b"Content-Length: 10485760" if declared else b"Transfer-Encoding: chunked"
        connection.sendall(HEAD + length + b"\r\n\r\n")
        for _ in range(160):
            connection.sendall(chunk if declared else b"10000\r\n" + chunk + b"\r\n")
        connection.sendall(b"" if declared else b"0\r\n\r\n")
        code, answer = answered(connection)
    assert code == 413
    assert b"too_large" in answer
    well(running)


def test_an_asked_for_100_continue_is_refused_at_once(running: Running) -> None:
    with running.connect() as connection:
        connection.sendall(HEAD + b"Content-Length: 99999999\r\nExpect: 100-continue\r\n\r\n")
        assert status(received(connection)) == 413


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        HEAD + b"Content-Length: abc\r\n\r\n",
        HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 40_000 + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        b"GET /\xff\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://elsewhere/ HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
def test_what_is_not_http(running: Running, data: bytes) -> None:
    with running.connect() as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        answer = received(connection)
    assert b"Traceback" not in answer
    assert answer == b"" or status(answer) < 500
    well(running)


@pytest.mark.parametrize(
    "data",
    [
        b"GET /health HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\n\r\n",
        b"GET /health HTTP/1.1\nHost: x\n\n",
        b"GET /health HTTP/1.1\r\nHost: x\nX: a\r\n\r\n",
        b"\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"A:b\r\n" * 100 + b"\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 17_000 + b"\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX: a\r\n b\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    ],
)
def test_heads_that_can_be_read_in_two_ways_are_refused(running: Running, data: bytes) -> None:
    with running.connect() as connection:
        connection.sendall(data + b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = received(connection)  # until the service closes the connection
    assert status(answer) == 400
    assert answer.count(b"HTTP/1.1 ") == 1
    well(running)


def test_half_closed_and_vanishing_clients(running: Running) -> None:
    data = request({"sentences": ["a"]})
    for cut in (0, 5, 60, len(data) - 1, len(data)):
        for reset in (False, True):
            connection = running.connect()
            connection.sendall(data[:cut])
            if reset:  # close with a reset
                option = b"\x01\x00\x00\x00\x00\x00\x00\x00"
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, option)
            else:
                connection.shutdown(socket.SHUT_WR)
                received(connection)
            connection.close()
    running.wait_for("elmore_running_requests", 0)
    well(running)


def test_a_cancelled_client_frees_its_place(running: Running) -> None:
    cancelled = running.metric("elmore_cancelled_total")
    data = request({"tokens": [["a"] * 200] * 110, "pooling": "mean"})
    gone = [running.connect() for _ in range(20)]
    for connection in gone:
        connection.sendall(data)
    end = time.monotonic() + 20
    while running.metric("elmore_waiting_tokens") < 100_000:
        assert time.monotonic() < end
    for connection in gone:
        connection.close()
    running.wait_for("elmore_waiting_tokens", 0, 5)
    running.wait_for("elmore_running_requests", 0, 5)
    assert running.metric("elmore_cancelled_total") > cancelled
    well(running)


def asked(running: Running, body: dict[str, object]) -> socket.socket:
    """Send a request with a small window for the response, and do not read it."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(60)
    connection.connect(("127.0.0.1", running.port))
    connection.sendall(request(body))
    return connection


LARGE = {"tokens": [["a"] * 100] * 200, "layers": "all"}  # 23 MB of JSON


def test_a_client_that_does_not_read_counts_and_is_dropped(lm_folder: Path, lm: Elmo) -> None:
    running = start(lm_folder, stall_seconds=3, tokens=40_000, queue_requests=3)
    try:
        held = [asked(running, LARGE) for _ in range(3)]
        running.wait_for("elmore_waiting_tokens", 0)
        assert running.metric("elmore_running_requests") == 3
        assert running.metric("elmore_pending_bytes") == 3 * 20_000 * 3 * lm.dim * 4
        assert running.ask("/v1/embed", {"sentences": ["a"]})[0] == 429
        running.wait_for("elmore_running_requests", 0)
        assert running.metric("elmore_pending_bytes") == 0
        for connection in held:
            answer = received(connection)
            assert answer.startswith(b"HTTP/1.1 200")
            assert not answer.endswith(b"\r\n0\r\n\r\n")
            connection.close()
        well(running)
    finally:
        running.stop()


def test_a_client_that_reads_slowly_gets_everything(lm_folder: Path, lm: Elmo) -> None:
    running = start(lm_folder, stall_seconds=1, tokens=40_000)
    body = {"tokens": [["a"] * 100] * 20, "layers": "all"}
    try:
        with asked(running, body) as connection:
            parts = [connection.recv(1 << 16)]
            while not parts[-1].endswith(b"\r\n0\r\n\r\n"):
                time.sleep(0.02)
                parts.append(connection.recv(1 << 16))
                assert parts[-1]
        whole = running.ask("/v1/embed", body)[1]
    finally:
        running.stop()
    assert len(b"".join(parts)) > 1_000_000
    wanted = lm.layers([["a"] * 100], tokenized=True)[0].values
    assert len(whole["results"]) == 20
    for result in whole["results"]:
        np.testing.assert_allclose(result["layers"], wanted, atol=1e-5)


@posix
def test_a_stop_does_not_wait_for_who_does_not_read(lm_folder: Path) -> None:
    running = start(lm_folder, stall_seconds=500, drain_seconds=500, tokens=40_000)
    with asked(running, LARGE):
        running.wait_for("elmore_running_requests", 1)
        running.wait_for("elmore_waiting_tokens", 0)
        code, said = running.stop()  # waits for a minute at most
    assert code == -signal.SIGTERM
    assert "Traceback" not in said


def test_the_bytes_of_all_responses_are_limited(lm_folder: Path) -> None:
    running = start(lm_folder, stall_seconds=500, tokens=40_000, pending_bytes=10_000_000)
    try:
        with asked(running, LARGE):
            running.wait_for("elmore_running_requests", 1)
            code, answer = running.ask("/v1/embed", LARGE)
            assert (code, answer["error"]["type"]) == (429, "overloaded")
            well(running)
        running.wait_for("elmore_pending_bytes", 0)  # it closed the connection
        well(running)
    finally:
        running.stop()


@posix
def test_more_connections_than_files(lm_folder: Path) -> None:
    """What cannot be held open is closed at once, and that is reported once."""
    running = start(lm_folder, header_seconds=60, files=128)
    idle = [running.connect() for _ in range(400)]
    try:
        time.sleep(0.5)
        closed = [one for one in idle if is_closed(one)]
        assert 300 <= len(closed) < 400
        for one in idle:
            one.close()
        time.sleep(0.5)
        well(running)
    finally:
        _, said = running.stop()
    assert said.count("\n") == 1
    assert "connections are open, which is the limit" in said


@posix
def test_a_stop_under_load_loses_nothing(lm_folder: Path) -> None:
    running = start(lm_folder, batch_tokens=512)
    answers: list[int] = []
    broken: list[int] = []
    sent = threading.Semaphore(0)
    stop = threading.Event()

    def client(k: int) -> None:
        data = request({"tokens": [["a"] * 60] * (5 + k), "pooling": "mean"})
        while not stop.is_set():
            try:
                connection = running.connect()
            except OSError:
                return  # nobody listens any more
            with connection:
                try:
                    connection.sendall(data)
                    sent.release()
                    answers.append(answered(connection)[0])
                except http.client.RemoteDisconnected:
                    return  # closed before the request was read
                except http.client.IncompleteRead:
                    broken.append(k)
                except OSError:
                    return

    threads = [threading.Thread(target=client, args=(k,)) for k in range(12)]
    for thread in threads:
        thread.start()
    for _ in range(60):
        sent.acquire()
    # The service asks for these bodies, so it has accepted their requests before the signal: they
    # must all be answered.
    body = json.dumps({"tokens": [["a"] * 300] * 50, "pooling": "mean"}).encode()
    head = HEAD + f"Content-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n".encode()
    accepted = [running.connect(60) for _ in range(4)]
    for connection in accepted:
        connection.sendall(head)
    for connection in accepted:
        assert status(connection.recv(1000)) == 100
        connection.sendall(body[:1000])
    running.process.send_signal(signal.SIGTERM)
    for connection in accepted:
        connection.sendall(body[1000:])
        assert status(received(connection)) == 200
        connection.close()
    _, said = running.process.communicate(timeout=60)
    stop.set()
    for thread in threads:
        thread.join()
    assert running.process.returncode == -signal.SIGTERM
    assert broken == []
    assert "Traceback" not in said
    assert set(answers) <= {200, 503}
    assert answers.count(200) >= 40


@posix
def test_the_verb(lm_folder: Path, tmp_path: Path) -> None:
    token = tmp_path / "token.txt"
    token.write_text("abc\n")
    running = start_verb("--model", str(lm_folder), "--threads", "1", "--token-file", str(token))
    try:
        assert running.ask("/v1/models")[0] == 401
        code, models = running.ask("/v1/models", Authorization="Bearer abc")
        assert (code, models["data"][0]["id"]) == (200, "small-model")
        command = [sys.executable, "-m", "elmore", "serve", f"--port={running.port}"]
        taken = subprocess.run(command, capture_output=True, text=True)
        assert taken.returncode == 2
        assert taken.stderr.count("\n") == 1
        assert "choose another --host or --port" in taken.stderr
    finally:
        code, said = running.stop(signal.SIGINT)
    assert (code, said) == (-signal.SIGINT, "")
