"""A headless Chromium driven through a pipe: nothing to install beside the browser itself.

What it speaks is the Chrome DevTools Protocol, as JSON ended by a zero byte.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars")
PATIENCE = 60.0  # seconds that an answer may take
_START = """\
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def executable() -> str | None:
    """Where the browser is, None if there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Chromium:
    """One browser with one page; a context manager."""

    def __init__(self) -> None:
        path = executable()
        if path is None:
            raise FileNotFoundError("no Chromium here: apt-get install chromium")
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._asked, self._pending = 0, b""
        self.events: list[dict[str, Any]] = []
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        high = [fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (theirs_in, theirs_out)]
        profile = f"--user-data-dir={self._folder.name}"
        command = [path, *FLAGS, profile, "--remote-debugging-pipe", "about:blank"]
        start = [sys.executable, "-c", _START, *map(str, high), *command]
        self._process = subprocess.Popen(start, pass_fds=high, stderr=subprocess.DEVNULL)
        for end in (theirs_in, theirs_out, *high):
            os.close(end)
        self._session = None
        targets = self.ask("Target.getTargets")["targetInfos"]
        target = next(t["targetId"] for t in targets if t["type"] == "page")
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")

    def __enter__(self) -> "Chromium":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)
        self._folder.cleanup()

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        self._asked += 1
        message = {"id": self._asked, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._asked:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def _read(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._pending:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self._in], [], [], left)[0]:
                raise TimeoutError("Chromium doesn't answer")
            content = os.read(self._in, 1 << 20)
            if not content:
                raise RuntimeError("Chromium has ended")
            self._pending += content
        message, _, self._pending = self._pending.partition(b"\0")
        return json.loads(message)

    def open(
        self,
        path: Path,
        *,
        width: int = 1280,
        height: int = 900,
        dark: bool = False,
        script: bool = True,
    ) -> None:
        """Show a file as a screen of that size would."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", media="screen", features=[scheme])
        self.ask("Emulation.setScriptExecutionDisabled", value=not script)
        self.ask("Storage.clearDataForOrigin", origin="file://", storageTypes="local_storage")
        self.events.clear()
        self.ask("Page.navigate", url=path.absolute().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read())

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression on the page."""
        answer = self.ask(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def point(self, x: float, y: float) -> None:
        """Move the pointer to a place of the window."""
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str) -> None:
        """Bring an element into the window and click on its middle."""
        x, y = self.middle(selector)
        self.point(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def middle(self, selector: str) -> tuple[float, float]:
        """Where an element's middle is once it has been brought into the window."""
        box = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center', behavior: 'instant'});"
            "const b = e.getBoundingClientRect();"
            "return [b.left, b.top, b.width, b.height] })()"
        )
        return box[0] + box[2] / 2, box[1] + box[3] / 2

    def key(self, name: str) -> None:
        """Press a key that has no letter, as `Escape`."""
        codes = {"Escape": 27, "ArrowLeft": 37, "ArrowRight": 39, "End": 35, "Tab": 9, "Enter": 13}
        for kind in ("rawKeyDown", "keyUp"):
            self.ask(
                "Input.dispatchKeyEvent",
                type=kind,
                key=name,
                code=name,
                windowsVirtualKeyCode=codes[name],
            )

    def shoot(self, path: Path, *, whole: bool = True) -> None:
        """Write a PNG of the whole page, or of what the window shows."""
        self.run("Promise.allSettled([...document.images].map(i => i.decode())).then(() => 0)")
        shot = self.ask("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def printed(self, path: Path) -> None:
        """Write the page as PDF."""
        self.ask("Emulation.setEmulatedMedia", media="print")
        paper = self.ask("Page.printToPDF", printBackground=False)
        path.write_bytes(base64.b64decode(paper["data"]))
