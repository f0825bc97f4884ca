"""Run the steps of the Dockerfile one by one, without Docker: .ci/image.py FOLDER

Each stage gets a folder and an empty environment of this Python. Then the command of the image is
started as the Dockerfile says, checked for health, and stopped.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


class Stage:
    """What a FROM starts: a root folder, an environment, and a place in it."""

    def __init__(self, root: Path) -> None:
        self.root = self.here = root
        subprocess.run([sys.executable, "-m", "venv", root / "venv"], check=True)
        self.environment = {name: os.environ[name] for name in os.environ if name[:4] == "PIP_"}
        path = os.pathsep.join((str(root / "venv" / "bin"), os.environ["PATH"]))
        self.environment |= {"PATH": path, "HOME": str(root)}

    def workdir(self, text: str) -> None:
        self.here = self.root / text.lstrip("/")
        self.here.mkdir(parents=True)

    def env(self, text: str) -> None:
        self.environment |= dict(word.split("=", 1) for word in shlex.split(text))

    def run(self, text: str) -> None:
        subprocess.run(["sh", "-c", text], cwd=self.here, env=self.environment, check=True)

    def copy(self, text: str, stages: dict[str, Stage]) -> None:
        *sources, to = text.split()
        base = ROOT
        if sources[0].startswith("--from="):
            base = stages[sources.pop(0).removeprefix("--from=")].root
        ignore = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info")  # as .dockerignore
        for source in sources:
            path = base / source.lstrip("/")
            if path.is_dir():
                shutil.copytree(path, self.here / to, ignore=ignore)
            else:
                shutil.copy(path, self.here / to)


def main(place: Path) -> None:
    """Build, start, ask, stop."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    stages: dict[str, Stage] = {}
    commands: dict[str, list[str]] = {}
    for line in text.split("\n"):
        word, _, rest = line.partition(" ")
        print(line, flush=True) if line else None
        if word == "FROM":
            name = rest.partition(" AS ")[2] or "last"
            stages[name] = stage = Stage(place / name)
        elif word == "COPY":
            stage.copy(rest, stages)
        elif word in ("WORKDIR", "ENV", "RUN"):
            getattr(stage, word.lower())(rest)
        elif word in ("CMD", "HEALTHCHECK"):
            commands[word] = json.loads(re.sub(r"^.*?\[", "[", rest))
        else:
            assert word in ("", "#", "USER", "EXPOSE"), f"{word}: write what this step does here"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    stage.environment |= {"ELMORE_SERVE_HOST": "127.0.0.1", "ELMORE_SERVE_PORT": port}
    serve(stage, commands["CMD"], commands["HEALTHCHECK"], f"http://127.0.0.1:{port}/v1/embed")


def serve(stage: Stage, command: list[str], health: list[str], address: str) -> None:
    """Start the command, wait until it is well, ask it, and stop it."""
    program = str(stage.root / "venv" / "bin" / command[0])
    with subprocess.Popen(
        [program, *command[1:]], cwd=stage.here, env=stage.environment, stdout=subprocess.PIPE
    ) as service:
        try:
            for _ in range(60):
                checked = subprocess.run(health, env=stage.environment, capture_output=True)
                if checked.returncode == 0 or service.poll() is not None:
                    break
                time.sleep(0.5)
            assert checked.returncode == 0, checked.stderr.decode()
            body = json.dumps({"sentences": ["It works."], "pooling": "mean"}).encode()
            request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request) as answer:
                assert json.load(answer)["results"]
        finally:
            with contextlib.suppress(ProcessLookupError):
                service.send_signal(signal.SIGTERM)
        assert service.stdout is not None
        log = [json.loads(line) for line in service.stdout]
    assert service.returncode in (0, -signal.SIGTERM), service.returncode
    assert (log[-1]["route"], log[-1]["status"]) == ("/v1/embed", 200)
    print("the image's command serves, is well, logs and stops")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
