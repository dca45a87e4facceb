"""Kubeflow Trainer v2 is told how far a run is, in the form that its controller takes (KEP-2779)."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from safelaunch.run import trainer_progress
from safelaunch.run.trainer_progress import TrainerProgress


@pytest.mark.parametrize(
    "answer",
    [
        b"\rerror[SL401]: rank 7 lied\x1b[31m\r\n\r\n",
        b"A" * 70_000,
        b"HTTP/1.1 200 OK\r\n" + b"".join(b"a%d: b\r\n" % n for n in range(200)) + b"\r\n",
    ],
    ids=["status", "long", "headers"],
)
def test_what_is_no_server_of_http_is_told_in_a_line(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    said: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            reached, _ = server.accept()
            with reached:
                reached.recv(1 << 16)
                reached.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        TrainerProgress({trainer_progress.URL: url}, said.append, lambda: True).end()
        thread.join(20)
    assert not raised
    assert len(said) == 1
    assert len(said[0]) < 300


def test_an_address_that_is_none_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    said: list[str] = []
    TrainerProgress({trainer_progress.URL: "http://localhost:abc/"}, said.append, lambda: True).end()
    assert (raised, len(said)) == ([], 1)


class Controller:
    """A server that keeps what it is sent, and answers with `code`."""

    def __init__(self) -> None:
        self.code, self.got, self.news = 200, list[tuple[str, Any]](), threading.Condition()
        controller = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(controller.code)
                if controller.code == 302:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()
                with controller.news:
                    controller.got.append((self.headers["Authorization"], body["trainerStatus"]))
                    controller.news.notify_all()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/status"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def take(self, count: int) -> list[tuple[str, Any]]:
        with self.news:
            assert self.news.wait_for(lambda: len(self.got) >= count, 20)
            return list(self.got)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def controller() -> Iterator[Controller]:
    made = Controller()
    yield made
    made.close()


@pytest.fixture
def environ(controller: Controller, tmp_path: Path) -> dict[str, str]:
    (tmp_path / "token").write_text("t0ken\n")
    return {trainer_progress.URL: controller.url, trainer_progress.TOKEN: str(tmp_path / "token")}


def pulse(step: int = 0, total: int = 0, steps: int = 0) -> Any:
    return SimpleNamespace(mark_step=step, mark_total=total, steps=steps)


def settled(progress: TrainerProgress) -> None:
    assert progress._thread is not None
    progress._thread.join(20)


def test_the_slowest_rank_is_how_far_the_job_is(controller: Controller, environ: dict[str, str]) -> None:
    progress = TrainerProgress(environ, print, lambda: True)

    progress.poll([pulse(12, 200), pulse(10, 200)], 100.0)
    settled(progress)
    progress.poll([pulse(31, 200), pulse(30, 200)], 140.0)

    (authorization, first), (_, second) = controller.take(2)
    assert authorization == "Bearer t0ken"
    assert first["progressPercentage"] == 5
    assert "estimatedRemainingSeconds" not in first
    assert (second["progressPercentage"], second["estimatedRemainingSeconds"]) == (15, 340)
    assert {"name": "step", "value": "30"} in second["metrics"]
    assert second["lastUpdatedTime"].endswith("Z")


def test_it_is_told_at_most_every_ten_seconds(controller: Controller, environ: dict[str, str]) -> None:
    progress = TrainerProgress(environ, print, lambda: True)

    for step in range(40):
        progress.poll([pulse(step, 200)], 100.0 + step / 4)
    settled(progress)

    assert len(controller.take(1)) == 1


def test_without_a_total_there_is_no_percentage(controller: Controller, environ: dict[str, str]) -> None:
    TrainerProgress(environ, print, lambda: True).poll([pulse(steps=7), pulse(steps=6)], 100.0)

    ((_, status),) = controller.take(1)
    assert status["metrics"] == [{"name": "steps", "value": "6"}]
    assert "progressPercentage" not in status


def test_only_a_good_end_is_complete(controller: Controller, environ: dict[str, str]) -> None:
    progress = TrainerProgress(environ, print, lambda: True)
    progress.poll([pulse(200, 200)], 100.0)
    settled(progress)
    progress.end()

    assert [status["progressPercentage"] for _, status in controller.take(2)] == [99, 100]


@pytest.mark.parametrize("code", [302, 403, 500])
def test_a_server_that_refuses_is_told_of_once_and_left_alone(
    code: int, controller: Controller, environ: dict[str, str]
) -> None:
    controller.code = code
    said: list[str] = []
    progress = TrainerProgress(environ, said.append, lambda: True)

    progress.poll([pulse(1, 200)], 100.0)
    settled(progress)
    progress._next = 0.0
    progress.poll([pulse(2, 200)], 200.0)
    settled(progress)

    assert len(controller.take(2)) == 2  # a redirection is not followed: the token is for this server
    assert len(said) == 1
    assert said[0].startswith("Kubeflow Trainer is not told of the progress: ")


def test_nodes_that_do_not_speak_send_nothing(controller: Controller, environ: dict[str, str]) -> None:
    progress = TrainerProgress(environ, print, lambda: False)
    progress.poll([pulse(1, 200)], 100.0)
    progress.end()
    assert controller.got == []
