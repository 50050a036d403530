"""A local stand-in of the Hugging Face hub's HTTP API: as much of it as an upload and a download
of a model take.
"""

import base64
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

TOKEN = "hf_token_that_may_write"
COMMIT = "0" * 40


@dataclass
class Hub:
    """What was uploaded.

    Attributes:
        url: the endpoint.
        files: the content of each file, by `USER/NAME/path`.
        repos: whether each repository is private.
        requests: method and path of each request.
    """

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    repos: dict[str, bool] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    _objects: dict[str, bytes] = field(default_factory=dict)

    def answer(self, method: str, path: str, token: str | None, body: bytes) -> tuple[int, Any]:
        """Status and content."""
        self.requests.append(f"{method} {path}")
        match [method, *path.strip("/").split("/")]:
            case ["PUT", "objects", oid]:
                assert hashlib.sha256(body).hexdigest() == oid
                self._objects[oid] = body
                return 200, {}
            case ["HEAD" | "GET", user, name, "resolve", _, *rest]:
                key = "/".join([user, name, *rest])
                return (200, self.files[key]) if key in self.files else (404, {})
            case _ if token != f"Bearer {TOKEN}":
                return 403, {"error": "forbidden"}
            case ["POST", "api", "repos", "create"]:
                asked = json.loads(body)
                repo = f"{asked['organization']}/{asked['name']}"
                if repo in self.repos:
                    return 409, {"error": "exists", "url": f"{self.url}/{repo}"}
                self.repos[repo] = asked.get("visibility") == "private"
                return 200, {"url": f"{self.url}/{repo}"}
            case ["POST", "api", "validate-yaml"]:
                return 200, {"errors": [], "warnings": []}
            case ["GET", "api", "models", user, name, *_]:
                repo = f"{user}/{name}"
                shown = [{"rfilename": file.removeprefix(f"{repo}/")} for file in self.files]
                about = {"id": repo, "private": self.repos[repo], "siblings": shown, "tags": []}
                return 200, {**about, "sha": COMMIT, "downloads": 0, "likes": 0}
            case ["POST", "api", "models", _, _, "preupload", _]:
                files = [self._mode(file["path"]) for file in json.loads(body)["files"]]
                return 200, {"files": files}
            case ["POST", _, name, "info", "lfs", "objects", "batch"] if name.endswith(".git"):
                objects = [self._place(o) for o in json.loads(body)["objects"]]
                return 200, {"transfer": "basic", "objects": objects}
            case ["POST", "api", "models", user, name, "commit", _]:
                for line in body.splitlines():
                    self._commit(f"{user}/{name}", json.loads(line))
                url = f"{self.url}/{user}/{name}/commit/{COMMIT}"
                return 200, {"commitUrl": url, "commitOid": COMMIT, "success": True}
        return 404, {"error": path}

    def _mode(self, path: str) -> dict[str, Any]:
        mode = "lfs" if path.endswith(".safetensors") else "regular"
        return {"path": path, "uploadMode": mode, "shouldIgnore": False}

    def _place(self, asked: dict[str, Any]) -> dict[str, Any]:
        place = {"href": f"{self.url}/objects/{asked['oid']}"}
        return {**asked, "actions": {"upload": place}}

    def _commit(self, repo: str, line: dict[str, Any]) -> None:
        value = line["value"]
        if line["key"] == "file":
            self.files[f"{repo}/{value['path']}"] = base64.b64decode(value["content"])
        if line["key"] == "lfsFile":
            self.files[f"{repo}/{value['path']}"] = self._objects[value["oid"]]


@contextmanager
def stand_in() -> Iterator[Hub]:
    """A hub on a free port of this machine."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = self.path.partition("?")[0]
            status, content = hub.answer(
                self.command, path, self.headers.get("Authorization"), body
            )
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("ETag", hashlib.sha256(data).hexdigest())
            self.send_header("X-Repo-Commit", COMMIT)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_HEAD = do_POST = do_PUT = _answer  # noqa: N815

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
