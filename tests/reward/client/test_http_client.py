"""Asking over HTTP: what is sent, what is asked again, and servers that are none."""

import asyncio
import gzip
import random
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import monotonic, sleep
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rlfactory.reward.base import RewardError, Samples
from rlfactory.reward.client.http_client import (
    LONGEST_WAIT,
    CallFailed,
    HttpReward,
    is_loopback,
)

from ..elsewhere import Elsewhere, servers


@pytest.fixture
def elsewhere() -> Iterator[Callable[..., Elsewhere]]:
    with servers() as start:
        yield lambda answer: start(answer, {"well": True})


class Client(HttpReward):
    """Asks, and scores nothing."""

    media, main = "texts", ""

    def score(self, samples: Samples) -> dict[str, torch.Tensor]:
        raise NotImplementedError

    def post(self, body: bytes) -> int:
        """What the server says of one body."""
        (answer,) = self.post_each("/score", 1, lambda _: body, size)
        if isinstance(answer, CallFailed):
            raise answer
        return answer


def client(
    url: str, *, token_env: str = "NO_TOKEN", retries: int = 0, timeout: float = 5
) -> Client:
    made = Client(url=url, timeout=timeout, retries=retries, backoff=0.01, concurrency=2)
    made.authorize(token_env)
    return made


def good(body: dict[str, Any]) -> tuple[int, object]:
    return 200, {"size": len(body)}


def size(number: int, answer: dict[str, Any]) -> int:
    if "size" not in answer:
        raise ValueError("no size")
    return answer["size"]


def test_json_goes_out_and_comes_back(elsewhere):
    server = client(elsewhere(good).url + "/")
    assert server.get("/health") == {"well": True}
    assert server.post(b'{"a": 1, "b": 2}') == 2


def test_it_is_asked_again_with_the_same_key(elsewhere):
    attempts = iter([(503, {"error": "full"}), (500, b"oh"), (200, b"nonsense"), (200, {}), None])

    def sometimes(body):
        return next(attempts, None) or good(body)

    server = elsewhere(sometimes)
    asks = client(server.url, retries=4)
    assert asks.post(b'{"a": 1}') == 1
    keys = {headers["Idempotency-Key"] for headers, _ in server.asked}
    assert (len(server.asked), len(keys)) == (5, 1)
    asks.post(b"{}")
    assert server.asked[-1][0]["Idempotency-Key"] not in keys


def test_a_refusal_for_good_is_not_asked_again(elsewhere):
    server = elsewhere(lambda body: (422, {"error": "metadata 0 lacks scene"}))
    with pytest.raises(CallFailed, match="the server says 422: metadata 0 lacks scene") as raised:
        client(server.url, retries=5).post(b"{}")
    assert len(server.asked) == 1
    assert raised.value.status == 422


def _raw_server(answer: Callable[[socket.socket], None]) -> str:
    listener = socket.create_server(("127.0.0.1", 0))

    def work() -> None:
        while True:
            client, _ = listener.accept()
            threading.Thread(target=answer, args=(client,), daemon=True).start()

    threading.Thread(target=work, daemon=True).start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def _drips(client: socket.socket) -> None:
    client.recv(10_000)
    client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    try:
        while True:
            client.sendall(b" ")
            sleep(0.02)
    except OSError:
        pass


def _drips_a_head(client: socket.socket) -> None:
    client.recv(10_000)
    client.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
    with suppress(OSError):
        while True:
            client.sendall(b"x")
            sleep(0.02)


def _never_reads(client: socket.socket) -> None:
    sleep(5)


def _hangs_up(client: socket.socket) -> None:
    client.recv(10_000)
    client.close()


def _never_ends(client: socket.socket) -> None:
    client.recv(10_000)
    client.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    try:
        while True:
            client.sendall(b"100000\r\n" + b" " * 2**20 + b"\r\n")
    except OSError:
        pass


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (_drips, "no complete answer within 0.2 s"),
        (_drips_a_head, "no complete answer within 0.2 s"),
        (_never_reads, "no complete answer within 0.2 s"),
        (_hangs_up, "RemoteProtocolError"),
        (_never_ends, "the answer is longer than"),
        (lambda client: client.sendall(b"SSH-2.0\r\n\r\n"), "RemoteProtocolError"),
    ],
    ids=["drips", "drips a head", "never reads", "hangs up", "never ends", "no HTTP"],
)
def test_servers_that_are_none(answer, said):
    timeout = 5.0 if answer is _never_ends else 0.2
    with pytest.raises(CallFailed, match=said):
        client(_raw_server(answer), timeout=timeout).get("/health")


def test_a_redirect_is_not_followed(elsewhere, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "s3cret")
    other = elsewhere(good)
    server = elsewhere(lambda body: (307, b""))
    server.headers = {"Location": other.url + "/score"}
    with pytest.raises(CallFailed, match="307: ask 'http://127.*, which is not followed"):
        client(server.url, token_env="MY_TOKEN", retries=2).post(b"{}")
    assert not other.asked


def test_a_compressed_answer_is_not_unpacked():
    packed = gzip.compress(b" " * 10_000_000)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)

    def answer(client: socket.socket) -> None:
        client.recv(10_000)
        client.sendall(head + packed)

    with pytest.raises((CallFailed, ValueError)):
        client(_raw_server(answer)).get("/health")


@pytest.mark.parametrize(("after", "waited"), [("7", 7), ("900", LONGEST_WAIT), ("soon", 0.01)])
def test_a_server_says_when_to_come_back(elsewhere, monkeypatch, after, waited):
    server, waits, wait = elsewhere(lambda body: (503, b"")), [], asyncio.sleep

    async def note(seconds: float) -> None:
        waits.append(seconds)
        await wait(0)

    monkeypatch.setattr(asyncio, "sleep", note)
    server.headers = {"Retry-After": after}
    with pytest.raises(CallFailed):
        client(server.url, retries=1).post(b"{}")
    assert [w for w in waits if w] == [pytest.approx(waited, rel=0.5)]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("127.0.0.1:8000", "is no address"),
        ("ftp://127.0.0.1", "is no address; one is http"),
        ("http://", "is no address"),
        ("http://me:secret@127.0.0.1:8000", "holds a password"),
        ("http://127.0.0.1:8000/?token=secret", "holds a password or a query"),
    ],
)
def test_addresses_that_are_none(url, said):
    with pytest.raises(RewardError, match=rf"^reward\.url.* {said}") as raised:
        client(url)
    assert "secret" not in str(raised.value)


def test_this_machine_by_its_name():
    assert all(map(is_loopback, ["localhost", "127.0.0.1", "127.8.0.1", "::1", "[::1]"]))
    assert not any(map(is_loopback, ["localhost.net", "10.0.0.1", "0.0.0.0", "::", ""]))


def test_the_token_comes_from_the_environment(elsewhere, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "s3cret")
    server = elsewhere(good)
    client(server.url, token_env="MY_TOKEN").post(b"{}")
    assert server.asked[0][0]["Authorization"] == "Bearer s3cret"
    monkeypatch.setenv("MY_TOKEN", "two words")
    with pytest.raises(RewardError, match="MY_TOKEN holds a token with spaces") as raised:
        client(server.url, token_env="MY_TOKEN")
    assert "two words" not in str(raised.value)
    monkeypatch.delenv("MY_TOKEN")
    client(server.url, token_env="MY_TOKEN").post(b"{}")
    assert server.asked[1][0]["Authorization"] is None


def test_pauses_double_and_differ():
    asks = Client(url="http://127.0.0.1", backoff=0.5)
    for attempt, longest in ((1, 0.5), (2, 1), (4, 4), (12, 30), (2000, 30)):
        state = SimpleNamespace(attempt_number=attempt, outcome=None)
        found = [asks.pause(state) for _ in range(200)]
        assert longest / 2 <= min(found) < max(found) <= longest
        assert max(found) - min(found) > longest / 4


def test_the_runs_random_numbers_are_not_touched(elsewhere):
    server = elsewhere(lambda body: (503, b""))
    random.seed(0)
    torch.manual_seed(0)
    before = random.getstate(), torch.get_rng_state()
    with pytest.raises(CallFailed, match=r"attempt 3, the last"):
        client(server.url, retries=2).post(b"{}")
    assert random.getstate() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])


def test_what_failed_stands_in_its_place(elsewhere):
    server = elsewhere(lambda body: (422, b"") if len(body) == 1 else good(body))
    bodies = [b"{}", b'{"a": 1}', b'{"a": 1, "b": 2}']
    first, failed, last = client(server.url).post_each("/score", 3, bodies.__getitem__, size)
    assert (first, last) == (0, 2)
    assert isinstance(failed, CallFailed)
    assert client(server.url).post_each("/score", 0, bodies.__getitem__, size) == []


@pytest.fixture
def interruptible():
    """A shell has what it runs in the background ignore the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interruption_does_not_wait_for_attempts():
    def interrupt(number: int) -> bytes:
        if number == 1:
            target = [threading.main_thread().ident, signal.SIGINT]
            threading.Timer(0.2, signal.pthread_kill, target).start()
        return b"{}"

    began = monotonic()
    with pytest.raises(KeyboardInterrupt):
        client(_raw_server(_never_reads), retries=9, timeout=60).post_each(
            "/score", 3, interrupt, size
        )
    assert monotonic() - began < 30
