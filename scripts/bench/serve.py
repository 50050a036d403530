"""Load test of a reward server: many clients, some bad requests, and the server's memory.

    python scripts/bench/serve.py --requests 10000 --clients 32

starts `rlfactory serve reward=compressibility` in a separate process. Of a hundred requests one is
malformed, one is oversized, and one is slow or aborted. All others must be answered with exactly
the scores that the reward gives in this process.
"""

import argparse
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
from base64 import b64encode
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import quantiles
from time import perf_counter

import httpx
import torch

from rlfactory.reward.base import Samples
from rlfactory.reward.client.protocol import png
from rlfactory.reward.jpeg import Compressibility

SIZE = 32
PICTURES = 64
MAX_BODY_MB = 1
TIMEOUT = 3
MALFORMED = [
    b"",
    b"{",
    b"[" * 5000,
    b"\x80\x04\x95nonsense",
    b'{"prompts": ["p"]}',
    b'{"prompts": ["p"], "images": {"format": "png", "data": ["AAAA"]}}',
    b'{"prompts": ["p", "q"], "images": {"format": "png", "data": [""]}}',
    b'{"prompts": ["p"], "images": {"format": "raw", "shape": [3, 1e9, 1], "data": [""]}}',
]
FAULTS = ("malformed", "oversized", "slow or aborted")


class Pictures:
    """Encoded images and their expected scores."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        shape = (PICTURES, 3, SIZE, SIZE)
        images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
        samples = Samples(["p"] * PICTURES, [{}] * PICTURES, torch.arange(PICTURES), images)
        self.files = [b64encode(png(image)).decode() for image in images]
        self.scores = Compressibility().score(samples)["compressibility"].tolist()

    def request(self, chosen: list[int]) -> bytes:
        """The body of a request for the scores of the chosen images."""
        data = {"format": "png", "data": [self.files[i] for i in chosen]}
        return json.dumps({"prompts": ["p"] * len(chosen), "images": data}).encode()


class Client:
    """Sends requests one after another, and counts the outcomes."""

    def __init__(self, port: int, pictures: Pictures, seed: int) -> None:
        self.port, self.pictures, self.chance = port, pictures, random.Random(seed)
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False)
        self.seen: Counter[str] = Counter()
        self.seconds: list[float] = []

    def run(self, count: int) -> None:
        """Send `count` requests."""
        for _ in range(count):
            kind = self.chance.choices(("valid", *FAULTS), (97, 1, 1, 1))[0]
            self.seen[f"{kind}, sent"] += 1
            self.seen[f"{kind}, {self._outcome(kind)}"] += 1

    def _outcome(self, kind: str) -> str:
        try:
            if kind == "valid":
                return self._valid()
            if kind == "malformed":
                status = self._post(self.chance.choice(MALFORMED)).status_code
                return "refused" if status in (400, 422) else f"{status}"
            if kind == "oversized":
                return self._oversized()
            return self._broken()
        except (httpx.HTTPError, OSError) as error:
            return type(error).__name__

    def _post(self, body: bytes) -> httpx.Response:
        key = {"Idempotency-Key": f"{self.chance.getrandbits(64):x}"}
        return self.http.post("/score", content=body, headers=key)

    def _valid(self) -> str:
        chosen = self.chance.choices(range(PICTURES), k=self.chance.randint(1, 4))
        body, begun = self.pictures.request(chosen), perf_counter()
        answer = self._post(body)
        self.seconds.append(perf_counter() - begun)
        if answer.status_code != 200:
            return f"{answer.status_code}"
        found = answer.json()["scores"]["compressibility"]
        return "right" if found == [self.pictures.scores[i] for i in chosen] else "WRONG"

    def _oversized(self) -> str:
        if self.chance.random() < 0.5:
            status = self._raw(b"Content-Length: 9999999999\r\n\r\n{" + b" " * 1000)
            return "refused" if status.startswith(b"HTTP/1.1 413") else repr(status[:20])
        parts = (b" " * 2**16 for _ in range(20 * MAX_BODY_MB))  # without a Content-Length
        answer = self.http.post("/score", content=parts)
        return "refused" if answer.status_code == 413 else f"{answer.status_code}"

    def _broken(self) -> str:
        body = self.pictures.request([0])
        head = b"Content-Length: %d\r\n\r\n" % len(body)
        if self.chance.random() < 0.5:
            sent = head + body
            self._raw(sent[: self.chance.randrange(len(sent))], leave=True)
            return "left"
        answer = self._raw(head + body[: self.chance.randrange(len(body))])
        return "shut out" if answer.startswith(b"HTTP/1.1 408") else repr(answer[:20])

    def _raw(self, rest: bytes, leave: bool = False) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as client:
            client.sendall(b"POST /score HTTP/1.1\r\nHost: x\r\n" + rest)
            return b"" if leave else client.recv(200)


def memory(process: int, key: str) -> float:
    """Resident memory of a process in MiB: present (VmRSS) or peak (VmHWM)."""
    status = Path(f"/proc/{process}/status").read_text()
    found = re.search(rf"{key}:\s+(\d+) kB", status)
    return int(found[1]) / 1024 if found else float("nan")


def start() -> tuple[subprocess.Popen[str], int]:
    """Start the server; the process and its port."""
    words = ["reward=compressibility", "hardware=cpu", "port=0", f"max_body_mb={MAX_BODY_MB}"]
    words += ["max_megapixels=1", f"timeout={TIMEOUT}"]
    process = subprocess.Popen(
        [sys.executable, "-m", "rlfactory.cli", "serve", *words],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    print(line.strip())
    found = re.search(r":(\d+);", line)
    assert found is not None, "the server did not start"
    return process, int(found[1])


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=32)
    told = parser.parse_args()
    pictures = Pictures()
    process, port = start()
    try:
        measure(process, port, pictures, told.requests, told.clients)
    finally:
        process.kill()


def measure(
    process: subprocess.Popen[str], port: int, pictures: Pictures, requests: int, count: int
) -> None:
    """Send all requests from `count` clients at once, stop the server, and print."""
    warm = Client(port, pictures, seed=-1)
    for _ in range(100):
        warm.run(1)
    clients = [Client(port, pictures, seed) for seed in range(count)]
    shares = [len(range(i, requests, count)) for i in range(count)]
    first, begun = memory(process.pid, "VmRSS"), perf_counter()
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(lambda pair: pair[0].run(pair[1]), zip(clients, shares, strict=True)))
    spent = perf_counter() - begun
    last, most = memory(process.pid, "VmRSS"), memory(process.pid, "VmHWM")
    alive = process.poll() is None
    process.send_signal(signal.SIGTERM)
    code = process.wait(60)
    seen = sum((client.seen for client in clients), Counter())
    for name in sorted(seen):
        print(f"{name:<28} {seen[name]:>7}")
    latency = quantiles([s for client in clients for s in client.seconds], n=100)
    print(f"requests a second            {requests / spent:>7.0f}")
    print(f"latency, median and 99 %     {1e3 * latency[49]:>7.0f} ms {1e3 * latency[98]:.0f} ms")
    print(f"memory, after 100 requests   {first:>7.0f} MiB")
    print(f"memory, at the end           {last:>7.0f} MiB, at most {most:.0f} MiB")
    print(f"alive at the end             {alive!s:>7}, then ended with {code}")


if __name__ == "__main__":
    main()
