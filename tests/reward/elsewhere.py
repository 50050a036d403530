"""HTTP servers for tests, with given responses; they record the requests."""

import json
import threading
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import Any

from PIL import Image

Answer = tuple[int, object]


class Elsewhere(ThreadingHTTPServer):
    """Answers GET with `health` and POST with what `answer` says."""

    daemon_threads = True

    def __init__(self, answer: Callable[[dict[str, Any]], Answer], health: object) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer, self.health = answer, health
        self.headers: dict[str, str] = {}
        self.asked: list[tuple[Any, dict[str, Any]]] = []
        self.now = self.most = 0
        self.lock = threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_: object) -> None:
        """Clients go away; that is what is tested."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Elsewhere

    def do_GET(self) -> None:
        self._send(200, self.server.health)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.asked.append((self.headers, body))
            self.server.now += 1
            self.server.most = max(self.server.most, self.server.now)
        try:
            status, answer = self.server.answer(body)
        finally:
            with self.server.lock:
                self.server.now -= 1
        self._send(status, answer)

    def _send(self, status: int, answer: object) -> None:
        content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def servers() -> Iterator[Callable[..., Elsewhere]]:
    """Starts servers, which are stopped at the end of a `with`."""
    running = []

    def start(answer: Callable[[dict[str, Any]], Answer], health: object) -> Elsewhere:
        server = Elsewhere(answer, health)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        running.append(server)
        return server

    yield start
    for server in running:
        server.shutdown()
        server.server_close()


def says(answer: Callable[[dict[str, Any]], str]) -> Callable[[dict[str, Any]], Any]:
    """What a language model's server answers."""
    return lambda body: (200, {"choices": [{"message": {"content": answer(body)}}]})


def asked(body: dict[str, Any]) -> tuple[str, Image.Image]:
    """The question and the picture that a language model is asked."""
    image, text = body["messages"][0]["content"]
    head, _, data = image["image_url"]["url"].partition(",")
    assert head == "data:image/png;base64"
    return text["text"], Image.open(BytesIO(b64decode(data)))
