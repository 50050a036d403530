"""The server: right answers, clear refusals, and nothing that brings it down."""

import gc
import json
import socket
import threading
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from time import monotonic, sleep

import httpx
import pytest
import torch
from PIL import Image

from rlfactory.reward.client.protocol import png

from .conftest import Probe


def image(value: int, size: int = 4) -> torch.Tensor:
    return torch.full((3, size, size), value, dtype=torch.uint8)


def message(*values: int, size: int = 4, **more: object) -> dict[str, object]:
    files = [b64encode(png(image(value, size))).decode() for value in values]
    prompts = [f"p{value}" for value in values]
    return {"prompts": prompts, "images": {"format": "png", "data": files}, **more}


def texts(*values: str, **more: object) -> dict[str, object]:
    return {"prompts": ["p"] * len(values), "texts": list(values), **more}


CLIENT = httpx.Client(timeout=20, trust_env=False)  # to make one takes longer than to ask


def ask(url: str, body: object, **more: object) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return CLIENT.post(f"{url}/score", content=content, **more)


def test_health_says_what_is_judged(serving):
    url = serving(Probe(metadata=("scene",)), max_samples=7)
    assert CLIENT.get(f"{url}/health").json() == {
        "protocol": 1,
        "media": "images",
        "main": "probe",
        "scores": ["probe"],
        "good": 1.0,
        "better": {},
        "metadata": ["scene"],
        "max_samples": 7,
    }


def test_scores_of_pictures_and_texts(serving):
    url = serving(Probe())
    answer = ask(url, message(0, 255, 51) | {"groups": [7, -3, 7]})
    assert answer.status_code == 200
    assert answer.json()["scores"]["probe"] == pytest.approx([0, 1, 0.2])
    assert answer.json()["scores"]["group"] == [0, 1, 0]
    assert CLIENT.get(f"{url}/health").json()["scores"] == ["probe", "group"]
    url = serving(Probe("texts"))
    body = texts("", "ab", "naïve")
    assert ask(url, body).json()["scores"]["probe"] == [0, 2, 5]


def test_what_could_not_be_scored_is_null(serving):
    body = texts("a", "b") | {"prompts": ["p", "nan"]}
    assert ask(serving(Probe("texts")), body).json()["scores"]["probe"] == [1, None]


def test_raw_pictures(serving):
    raw = b64encode(image(51).numpy().tobytes()).decode()
    body = {"prompts": ["p"], "images": {"format": "raw", "shape": [3, 4, 4], "data": [raw]}}
    assert ask(serving(Probe()), body).json()["scores"]["probe"] == pytest.approx([0.2])


PICTURE = message(1)["images"]
GREY = BytesIO()
Image.new("L", (4, 4)).save(GREY, "PNG")
JPEG = BytesIO()
Image.new("RGB", (4, 4)).save(JPEG, "JPEG")
FILE = png(torch.randint(0, 255, (3, 32, 32), dtype=torch.uint8))


def of(file: bytes, **more: object) -> dict[str, object]:
    data = {"format": "png", "data": [b64encode(file).decode()], **more}
    return {"prompts": ["p"], "images": data}


MALFORMED = {
    b"": (400, "no JSON"),
    b"{": (400, "no JSON"),
    b"[1]": (400, "no JSON object"),
    b"[" * 100_000: (400, "no JSON"),
    b'{"prompts": ["p"], "x": NaN}': (400, "NaN is no number"),
    b"\xff\xfe\x00": (400, "no JSON"),
    b"\x80\x04\x95": (400, "no JSON"),  # how a pickle begins
}
WRONG = [
    ({}, "prompts must be a list"),
    ({"prompts": []}, "there are no prompts"),
    ({"prompts": [1]}, "prompts 0 must be of type str"),
    ({"prompts": ["p"]}, "there are no images"),
    (message(1, protocol=2), "protocol 2 is not spoken"),
    (message(1, groups=[1, 2]), "2 groups for 1 prompts"),
    (message(1, groups=[True]), "groups 0 must be of type int"),
    (message(1, metadata=[3]), "metadata 0 must be of type dict"),
    (message(1, metadata=[]), "0 metadata for 1 prompts"),
    ({"prompts": ["p", "q"], "images": PICTURE}, "1 data for 2 prompts"),
    ({"prompts": ["p"], "images": {"format": "gif", "data": [""]}}, "format 'gif'"),
    ({"prompts": ["p"], "images": {"format": "png", "data": ["é"]}}, "no base64"),
    (of(b"nonsense"), "image 0 is no PNG"),
    (of(GREY.getvalue()), "mode L; only RGB"),
    (of(JPEG.getvalue()), "image 0 is no PNG"),
    (of(FILE[: len(FILE) // 2]), "image 0 is damaged"),
    (of(b"123", format="raw"), "need their shape"),
    (of(b"123", format="raw", shape=[3, 1, -1]), "need their shape"),
    (of(b"123", format="raw", shape=[3, 1, 2]), "does not have the 6 bytes"),
    (
        {"prompts": ["p", "q"]}
        | {
            "images": {
                "format": "png",
                "data": [of(png(image(0, size)))["images"]["data"][0] for size in (4, 5)],
            }
        },
        "have one size, not 2",
    ),
]


@pytest.mark.slow
def test_what_is_malformed_is_refused_and_the_next_is_answered(serving):
    url = serving(Probe())
    for body, (status, said) in MALFORMED.items():
        answer = ask(url, body)
        assert (answer.status_code, said in answer.json()["error"]) == (status, True), answer.text
    for body, said in WRONG:
        answer = ask(url, body)
        assert (answer.status_code, said in answer.json()["error"]) == (422, True), answer.text
    assert ask(url, message(255)).json()["scores"]["probe"] == [1]


def test_texts_that_are_missing(serving):
    answer = ask(serving(Probe("texts")), message(1))
    assert (answer.status_code, answer.json()["error"]) == (422, "texts must be a list")


def test_metadata_that_is_missing(serving):
    url = serving(Probe("texts", metadata=("scene",)))
    answer = ask(url, texts("a", "b", metadata=[{"scene": 1}, {}]))
    assert (answer.status_code, answer.json()["error"]) == (422, "metadata 1 lacks scene")


def test_routes_that_are_not_there(serving):
    url = serving(Probe())
    assert CLIENT.get(f"{url}/").status_code == 404
    assert "POST /score" in CLIENT.get(f"{url}/scores").json()["error"]
    assert CLIENT.get(f"{url}/score").status_code == 405


@pytest.mark.slow
def test_a_token(serving, monkeypatch):
    url = serving(Probe("texts"), token="secret")
    for headers in ({}, {"Authorization": "Bearer Secret"}, {"Authorization": "secret"}):
        for path in ("/health", "/score", "/nowhere"):
            answer = CLIENT.post(f"{url}{path}", headers=headers)
            assert (answer.status_code, answer.json()["error"]) == (401, "a bearer token is needed")
    headers = {"Authorization": "Bearer secret"}
    assert ask(url, texts("ab"), headers=headers).json()["scores"]["probe"] == [2]


def test_what_is_too_large(serving):
    limits = {"max_body_mb": 0.01, "max_samples": 2, "max_megapixels": 0.001}
    url = serving(Probe(), **limits)
    answer = ask(url, message(1, 2, 3))
    assert (answer.status_code, "at most 2 samples" in answer.text) == (413, True)
    answer = ask(url, message(1, size=33))
    assert (answer.status_code, "0.001 megapixels" in answer.text) == (413, True)
    assert ask(url, b" " * 20_000).status_code == 413
    parts = (b" " * 1000 for _ in range(20))  # without a stated length
    assert CLIENT.post(f"{url}/score", content=parts).status_code == 413
    assert ask(url, message(255)).status_code == 200


def _connect(url: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=10)


def test_an_oversized_body_is_refused_before_it_is_read(serving):
    url = serving(Probe(), max_body_mb=1.0)
    with _connect(url) as client:
        client.sendall(b"POST /score HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n{")
        assert client.recv(1000).startswith(b"HTTP/1.1 413 ")


def test_a_slow_client_is_left_behind(serving):
    url = serving(Probe("texts"), timeout=1.0)
    with _connect(url) as client:
        client.sendall(b"POST /score HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
        assert client.recv(1000).startswith(b"HTTP/1.1 408 ")
    assert ask(url, texts("ab")).status_code == 200


def test_a_client_that_goes_away(serving):
    probe = Probe("texts")
    url = serving(probe)
    for _ in range(5):
        with _connect(url) as client:
            client.sendall(b"POST /score HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{")
    probe.blocked.clear()
    body = json.dumps(texts("abc")).encode()
    with _connect(url) as client:
        client.sendall(
            b"POST /score HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
    probe.blocked.set()
    assert ask(url, texts("ab")).json()["scores"]["probe"] == [2]


@pytest.mark.parametrize(
    ("prompt", "said"),
    [("raise", "KeyError: 'no such thing'"), ("leave", "SystemExit: 3"), ("short", "[2]")],
)
def test_a_reward_that_fails_does_not_end_the_server(serving, prompt, said, caplog):
    url = serving(Probe("texts"))
    answer = ask(url, texts("a") | {"prompts": [prompt]})
    assert (answer.status_code, said in answer.json()["error"]) == (500, True)
    assert "the reward failed" in caplog.text
    assert ask(url, texts("ab")).status_code == 200


def test_requests_that_come_together_are_scored_each_alone(serving):
    probe = Probe("texts")
    url = serving(probe)
    with ThreadPoolExecutor(3) as pool:
        bodies = [texts("a" * n, "b" * n, groups=[5, 5]) for n in range(3)]
        answers = [*pool.map(lambda body: ask(url, body).json()["scores"], bodies)]
    assert [answer["probe"] for answer in answers] == [[0, 0], [1, 1], [2, 2]]
    assert [len(seen.prompts) for seen in probe.seen] == [2, 2, 2]
    assert {tuple(answer["group"]) for answer in answers} == {(0, 0)}


def test_one_request_does_not_spoil_another(serving):
    probe = Probe("texts")
    url = serving(probe)
    with ThreadPoolExecutor(2) as pool:
        bodies = [texts("a") | {"prompts": ["raise"]}, texts("ab")]
        answers = [*pool.map(lambda body: ask(url, body), bodies)]
    assert [answer.status_code for answer in answers] == [500, 200]
    assert answers[1].json()["scores"]["probe"] == [2]


def test_a_repeated_key_is_not_scored_twice(serving):
    probe = Probe("texts")
    url = serving(probe, kept=2)
    headers = {"Idempotency-Key": "k"}
    first = ask(url, texts("ab"), headers=headers)
    assert ask(url, texts("ab"), headers=headers).content == first.content
    assert len(probe.seen) == 1
    other = ask(url, texts("abc"), headers=headers)
    assert (other.status_code, "another request" in other.text) == (422, True)
    for key in ("l", "m"):
        ask(url, texts("ab"), headers={"Idempotency-Key": key})
    ask(url, texts("ab"), headers=headers)
    assert len(probe.seen) == 4, "the oldest answer was forgotten"
    assert ask(url, texts("ab"), headers={"Idempotency-Key": "k" * 201}).status_code == 400


def test_a_key_that_is_being_worked_on(serving):
    probe = Probe("texts")
    probe.blocked.clear()
    url = serving(probe)
    with ThreadPoolExecutor(2) as pool:
        asked = [
            pool.submit(ask, url, texts("ab"), headers={"Idempotency-Key": "k"}) for _ in range(2)
        ]
        sleep(0.2)
        probe.blocked.set()
        assert [a.result().json()["scores"]["probe"] for a in asked] == [[2], [2]]
    assert len(probe.seen) == 1


def test_a_failure_is_not_remembered(serving):
    probe = Probe("texts")
    url = serving(probe)
    body = texts("a") | {"prompts": ["raise"]}
    for _ in range(2):
        assert ask(url, body, headers={"Idempotency-Key": "k"}).status_code == 500
    assert len(probe.seen) == 2


def test_a_pickle_is_never_opened(serving, monkeypatch):
    import pickle

    opened = threading.Event()
    monkeypatch.setattr(pickle, "loads", lambda *_: opened.set())
    monkeypatch.setattr(pickle, "load", lambda *_: opened.set())
    assert ask(serving(Probe()), pickle.dumps({"prompts": ["p"]})).status_code == 400
    gc.collect()
    assert not opened.is_set()


def test_requests_beyond_the_limit_are_refused(serving):
    url = serving(Probe("texts"), connections=2)

    def answers(status: int) -> bool:
        until = monotonic() + 20  # connections begin and end in the server's own time
        while httpx.post(f"{url}/score", json=texts("ab")).status_code != status:
            if monotonic() > until:
                return False
        return True

    with _connect(url), _connect(url):
        assert answers(503)
    assert answers(200)
