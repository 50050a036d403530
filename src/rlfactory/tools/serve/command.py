"""`rlfactory serve`: checks the arguments, binds the address, loads the reward, serves it."""

import ipaddress
import logging
import os
import secrets
import signal
import socket
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from rlfactory.config.checks.rules import component_problems
from rlfactory.config.overrides import compose
from rlfactory.config.problems import PlanError, Problem
from rlfactory.config.user_code import untrusted
from rlfactory.tools.serve.settings import ServeSettings, read_settings
from rlfactory.utils.console import silence_notices
from rlfactory.utils.processes import signal_handlers

SHORTEST_TOKEN = 16
"""Characters of a token beyond this machine, at least."""
GRACE = 30
"""Seconds in which requests are still answered after the server was asked to stop."""


def serve(words: Sequence[str]) -> int:
    """Serve the reward that the arguments `words` choose; returns once the server has stopped."""
    settings, overrides = read_settings(words)
    composed = compose(overrides, as_named=True)  # there is no model
    problems = [*composed.problems, *untrusted(composed.values, overrides)]
    for component in ("reward", "hardware"):
        problems += component_problems(composed.values, component)
    if problems:
        raise PlanError(problems)
    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        message = f"needs {' and '.join(missing)}; type pip install 'rlfactory[serve]'"
        raise PlanError([Problem("serve", message)])
    with listen(settings) as listener:
        token = os.environ.get(settings.token_env, "")
        if not is_loopback(listener):
            token = required_token(settings, token)
        _run(composed.values, settings, token, listener)
    return 0


def required_token(settings: ServeSettings, token: str) -> str:
    """The token of a server that other machines can reach: the one that is set, or a new one, which
    is printed. PlanError if that is short enough to be guessed.
    """
    if not token:
        token = secrets.token_urlsafe(32)
        print(f"the token of this server, for its clients: export {settings.token_env}={token}")
    if len(token) < SHORTEST_TOKEN:
        message = (
            f"has a token of {len(token)} characters, which can be guessed; allowed are"
            f" {SHORTEST_TOKEN} or more, and without any the server makes one"
        )
        raise PlanError([Problem(settings.token_env, message)])
    return token


def is_loopback(listener: socket.socket) -> bool:
    """Whether a bound socket can be reached from this machine alone."""
    address = str(listener.getsockname()[0])
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def listen(settings: ServeSettings) -> socket.socket:
    """A socket bound to the settings' address, which does not accept connections yet.

    PlanError if the address can't be bound.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        message = f"{settings.host} is no address of this machine: {error}"
        raise PlanError([Problem("host", message, "host=127.0.0.1")]) from error
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        message = f"can't listen on {settings.host}:{settings.port}: {error.strerror}"
        raise PlanError([Problem("port", message, "port=0")]) from error
    return listener


def _run(
    config: Mapping[str, Any], settings: ServeSettings, token: str, listener: socket.socket
) -> None:
    """Load the reward, and answer requests until SIGTERM or SIGINT; then finish those in progress,
    unless a second signal comes.
    """
    silence_notices()
    from rlfactory.config.schema.targets import instantiate
    from rlfactory.train.process.ranks import single_process_config

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    node = single_process_config(config)["hardware"]
    hardware = instantiate(node, "hardware", loss_scaling=False)
    reward = instantiate(config["reward"], "reward", device=hardware.device)
    option = "remote" if reward.media == "images" else "remote_text"
    listener.listen(1024)
    host, port = settings.host, listener.getsockname()[1]
    host = socket.gethostname() if host in ("", "0.0.0.0", "::") else host
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    print(
        f"serving {reward.main} of {reward.media} at {address};"
        f" to train with it: rlfactory reward={option} reward.url={address}",
        flush=True,
    )
    # uvicorn raises the signal again when it has stopped, which would end this process by it
    with signal_handlers(lambda *_: None, (signal.SIGINT, signal.SIGTERM)):
        make_server(reward, settings, token).run(sockets=[listener])


def make_server(reward: Any, settings: ServeSettings, token: str) -> Any:
    """The uvicorn server, not running yet."""
    import uvicorn

    from rlfactory.tools.serve.http_app import application

    config = uvicorn.Config(
        application(reward, settings, token),
        http="h11",
        ws="none",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=settings.timeout,  # type: ignore[arg-type]  # it sets a timer
        timeout_graceful_shutdown=GRACE,
        limit_concurrency=settings.connections + 1,  # it counts the new one too
        backlog=1024,
    )
    return uvicorn.Server(config)
