"""`rlfactory serve`: what it refuses, and a server with its clients in processes of their own."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep

import httpx
import pytest
import torch

from rlfactory.cli import app
from rlfactory.config.problems import PlanError
from rlfactory.reward.base import RewardError, Samples
from rlfactory.reward.jpeg import Compressibility
from rlfactory.reward.remote import Remote
from rlfactory.tools.serve.command import is_loopback, listen, required_token
from rlfactory.tools.serve.settings import ServeSettings, read_settings

SOURCE = str(Path(app.__file__).parents[2])


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Callable[..., tuple[subprocess.Popen[str], str]]]:
    """Starts `rlfactory serve WORDS`; returns the process and the line that it prints."""
    running = []

    def start(*words: str, **environment: str) -> tuple[subprocess.Popen[str], str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "rlfactory.cli", "serve", *words],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1"} | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        assert process.stdout is not None
        return process, process.stdout.readline()

    yield start
    for process in running:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_a_server_and_its_client_in_two_processes(served, monkeypatch):
    words = ["reward=compressibility", "reward.unit=2", "hardware=cpu", "port=0"]
    process, line = served(*words, RLFACTORY_SERVE_TOKEN="secret")
    found = re.fullmatch(
        r"serving compressibility of images at (http://127.0.0.1:\d+);"
        r" to train with it: rlfactory reward=remote reward.url=\1\n",
        line,
    )
    assert found, line
    with pytest.raises(RewardError, match="401.*is RLFACTORY_SERVE_TOKEN set to its token"):
        Remote(url=found[1])
    monkeypatch.setenv("RLFACTORY_SERVE_TOKEN", "secret")
    remote = Remote(url=found[1], batch_size=2)
    torch.manual_seed(0)
    images = torch.randint(0, 256, (6, 3, 16, 16), dtype=torch.uint8)
    samples = Samples(["p"] * 6, [{}] * 6, torch.tensor([0, 0, 1, 1, 2, 2]), images)
    assert remote.main == "compressibility"
    near, far = Compressibility(unit=2.0).score(samples), remote.score(samples)
    assert near.keys() == far.keys()
    assert all(torch.equal(near[name], far[name]) for name in near)
    process.send_signal(signal.SIGTERM)
    assert process.wait(15) == 0
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()


@pytest.mark.slow
def test_a_request_is_answered_before_the_server_stops(served, tmp_path):
    (tmp_path / "slow.py").write_text(
        "import time, pathlib\n"
        "def slow(completions):\n"
        "    pathlib.Path('begun').touch()\n"
        "    time.sleep(0.7)\n"
        "    return [1.0 for _ in completions]\n"
    )
    process, line = served("reward=function", "reward.function=slow.py:slow", "port=0")
    url = re.search(r"http://[\d.:]+", line)
    assert url, line
    body = {"prompts": ["p"], "texts": ["a"]}
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(httpx.post, f"{url[0]}/score", json=body, timeout=10)
        until = monotonic() + 10
        while not (tmp_path / "begun").exists() and monotonic() < until:
            sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert asked.result().json() == {"scores": {"slow": [1.0]}}
    assert process.wait(15) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "reward: none named"),
        (["reward=lenght"], "Did you mean length?"),
        (["reward=length", "reward.target=0"], "reward.target: is 0"),
        (["reward=length", "reward.targt=3"], "Did you mean reward.target"),
        (["reward=remote"], "reward.url: has no value yet"),
        (["reward=length", "port=many"], "port: is 'many'; allowed is a whole number"),
        (["reward=length", "port=65536"], "port: is 65536"),
        (["reward=length", "timeout=-1"], "timeout: is -1"),
        (["reward=length", "seed=3"], "seed: is no setting of a server; allowed are host, port"),
        (["reward=length", "fast"], "fast: is no setting of a server"),
        (["reward=length", "connections=0"], "connections: is 0"),
        (["reward=length", "host=nowhere.invalid"], "is no address of this machine"),
    ],
    ids=str,
)
def test_what_is_refused(refused, monkeypatch, words, said):
    monkeypatch.delenv("RLFACTORY_SERVE_TOKEN", raising=False)
    assert said in refused("serve", *words)


def test_a_port_that_is_taken(refused):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert f"can't listen on 127.0.0.1:{port}" in refused(
            "serve", "reward=length", f"port={port}"
        )


@pytest.mark.parametrize(("host", "is_alone"), [("0.0.0.0", False), ("localhost", True)])
def test_which_addresses_are_this_machine_alone(host, is_alone):
    with listen(ServeSettings(host=host, port=0)) as found:
        assert is_loopback(found) is is_alone


def test_beyond_this_machine_there_is_a_token(capsys):
    settings = ServeSettings(token_env="MINE")
    made = [required_token(settings, "") for _ in range(2)]
    assert len({*made}) == 2
    assert min(map(len, made)) >= 32
    assert f"export MINE={made[0]}" in capsys.readouterr().out
    assert required_token(settings, "0123456789abcdef") == "0123456789abcdef"
    with pytest.raises(PlanError, match="MINE.*16 or more"):
        required_token(settings, "secret")


def test_a_missing_package_is_named(refused, monkeypatch):
    from rlfactory.tools.serve import command

    monkeypatch.setattr(command, "find_spec", lambda name: None if name == "uvicorn" else 1)
    assert "serve: needs uvicorn; type pip install 'rlfactory[serve]'" in refused(
        "serve", "reward=length"
    )


def test_settings_and_overrides_are_told_apart():
    words = ["reward=length", "port=9", "reward.target=3", "timeout=0.5", "trust=[x]"]
    settings, overrides = read_settings(words)
    assert (settings.port, settings.timeout, settings.host) == (9, 0.5, "127.0.0.1")
    assert overrides == ["reward=length", "reward.target=3", "trust=[x]"]
