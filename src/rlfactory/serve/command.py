"""`rlfactory serve`: plan the reward, take the address, load, listen until told to stop."""

import ipaddress
import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from rlfactory.plan import component_problems
from rlfactory.problems import PlanError, Problem
from rlfactory.request import compose_request
from rlfactory.serve.settings import ServeSettings, read_settings

GRACE = 30
"""Seconds that requests have to be answered after the server was told to stop."""


def serve(words: Sequence[str]) -> int:
    """Serve the reward that `words` name; returns once the server was told to stop."""
    settings, overrides = read_settings(words)
    composed = compose_request(overrides)
    problems = [*composed.problems]
    for component in ("reward", "hardware"):
        problems += component_problems(composed.values, component)
    if problems:
        raise PlanError(problems)
    _require_extra()
    token = os.environ.get(settings.token_env, "")
    listener = listen(settings, token)
    return _run(composed.values, settings, token, listener)


def _require_extra() -> None:
    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        message = f"needs {' and '.join(missing)}; type pip install 'rlfactory[serve]'"
        raise PlanError([Problem("serve", message)])


def listen(settings: ServeSettings, token: str) -> socket.socket:
    """A socket at the settings' address, which must be this machine's own where there is no token.

    It accepts nobody yet. PlanError where the address can't be had.
    """
    place = f"{settings.host}:{settings.port}"
    try:
        family, _, _, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        message = f"{settings.host} is no address of this machine: {error}"
        raise PlanError([Problem("host", message, "host=127.0.0.1")]) from error
    if not token and not ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback:
        message = (
            f"{settings.host} can be reached from other machines, so a token is needed: set"
            f" {settings.token_env}"
        )
        raise PlanError([Problem("host", message, "host=127.0.0.1")])
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind(address)
    except OSError as error:
        found.close()
        message = f"{place} can't be listened at: {error.strerror}"
        raise PlanError([Problem("port", message, "port=0")]) from error
    return found


def _run(
    config: Mapping[str, Any], settings: ServeSettings, token: str, listener: socket.socket
) -> int:
    from rlfactory.on_run import silence_notices

    silence_notices()
    from rlfactory.hardware.base import HardwareError
    from rlfactory.joining import alone
    from rlfactory.reward.base import RewardError
    from rlfactory.targets import instantiate

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    try:
        node = alone(config)["hardware"]
        hardware = instantiate(node, "hardware", loss_scaling=False)
        reward = instantiate(config["reward"], "reward", device=hardware.device)
    except (HardwareError, RewardError, OSError) as error:
        listener.close()
        print(f"error: {error}", file=sys.stderr)
        return 1
    option = "remote" if reward.media == "images" else "remote_text"
    listener.listen(1024)
    address = f"http://{_shown(listener, settings.host)}"
    print(
        f"serving {reward.main} of {reward.media} at {address};"
        f" to train with it: rlfactory reward={option} reward.url={address}",
        flush=True,
    )
    run_until_stopped(reward, settings, token, listener)
    return 0


def _shown(listener: socket.socket, host: str) -> str:
    """The address that others type."""
    port = listener.getsockname()[1]
    if host in ("", "0.0.0.0", "::"):
        host = socket.gethostname()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def run_until_stopped(
    reward: Any, settings: ServeSettings, token: str, listener: socket.socket
) -> None:
    """Answer requests until SIGTERM or SIGINT; then take no more and finish those that are there.

    A second signal does not wait for them.
    """
    server = make_server(reward, settings, token)
    kept = {}
    # uvicorn raises a signal again when it is done, for those who wait for it: there is nobody
    for number in (signal.SIGINT, signal.SIGTERM):
        kept[number] = signal.signal(number, lambda *_: None)
    try:
        server.run(sockets=[listener])
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def make_server(reward: Any, settings: ServeSettings, token: str) -> Any:
    """The uvicorn server, which listens once it runs."""
    import uvicorn

    from rlfactory.serve.app import application
    from rlfactory.serve.connection import Connection

    config = uvicorn.Config(
        application(reward, settings, token),
        http=Connection,
        ws="none",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=settings.timeout,  # type: ignore[arg-type]  # it sets a timer
        timeout_graceful_shutdown=GRACE,
        limit_concurrency=1024,
        backlog=1024,
    )
    return uvicorn.Server(config)
