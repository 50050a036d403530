"""A server of rewards on a free port of this machine, run by a thread of the test."""

import socket
import threading
from collections.abc import Callable, Iterator
from time import monotonic, sleep
from typing import Any

import pytest
import torch
from torch import Tensor

from rlfactory.reward.base import Reward, Samples
from rlfactory.tools.serve.command import make_server
from rlfactory.tools.serve.settings import ServeSettings


class Probe(Reward):
    """Scores each sample by itself and remembers what it was asked; some prompts make trouble."""

    metadata = ()
    best_score = 1.0
    main = "probe"

    def __init__(self, media: str = "images", metadata: tuple[str, ...] = ()) -> None:
        self.media = media  # type: ignore[misc,assignment]
        self.metadata = metadata  # type: ignore[misc]
        self.seen: list[Samples] = []
        self.begun = threading.Event()
        self.blocked = threading.Event()
        self.blocked.set()

    def score(self, samples: Samples) -> dict[str, Tensor]:
        self.begun.set()
        self.blocked.wait(20)
        self.seen.append(samples)
        if "raise" in samples.prompts:
            raise KeyError("no such thing")
        if "leave" in samples.prompts:
            raise SystemExit(3)
        if "short" in samples.prompts:
            return {"probe": torch.zeros(len(samples.prompts) + 1)}
        if samples.images is not None:
            scores = samples.images.float().mean((1, 2, 3)) / 255
        else:
            assert samples.texts is not None
            scores = torch.tensor([float(len(text)) for text in samples.texts])
        scores[[prompt == "nan" for prompt in samples.prompts]] = torch.nan
        return {"probe": scores, "group": samples.groups.float()}


@pytest.fixture
def serving() -> Iterator[Callable[..., str]]:
    """Starts servers and returns their addresses; they are stopped afterwards."""
    running: list[tuple[Any, threading.Thread]] = []

    def start(reward: Reward, token: str = "", **settings: Any) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        server = make_server(reward, ServeSettings(**settings), token)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        running.append((server, thread))
        until = monotonic() + 10
        while not server.started:
            assert monotonic() < until, "the server did not start"
            sleep(0.005)
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for server, _ in running:
        server.should_exit = True
        server.force_exit = True
    for _, thread in running:
        thread.join(10)
        assert not thread.is_alive()
