"""`rlfactory export RUN --push USER/NAME`, against a local stand-in of the hub's API."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from rlfactory.cli import app
from rlfactory.run.loggers.base import save_link
from rlfactory.tools.export.upload import UploadError

from hub_stand_in import TOKEN, Hub, stand_in  # isort: skip

REPO = "team/red"


@pytest.fixture
def hub() -> Iterator[Hub]:
    with stand_in() as hub:
        yield hub


@pytest.fixture
def here(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """The hub that this process uploads to, with a token."""
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    return hub


def push(run: Path, *words: str) -> int:
    return app.dispatch(["export", str(run), "--push", REPO, *words])


@pytest.mark.slow
def test_a_folder_is_uploaded_and_can_be_loaded_by_its_name(
    run: Path,
    here: Hub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    save_link(run, "Weights & Biases", "https://metrics.example/run")
    monkeypatch.chdir(tmp_path)
    assert push(run, "--private") == 0
    assert f"uploaded to {here.url}/{REPO}\n" in capsys.readouterr().out
    assert here.repos == {REPO: True}
    assert not [*tmp_path.iterdir()], "nothing is left behind"
    names = {path.removeprefix(f"{REPO}/") for path in here.files}
    adapters = {"pytorch_lora_weights.safetensors", "adapter_model.safetensors"}
    assert {"README.md", "rlfactory.yaml", *adapters} <= names
    card = here.files[f"{REPO}/README.md"].decode()
    assert f"pipe.load_lora_weights('{REPO}')" in card
    assert "- metrics: [Weights & Biases](https://metrics.example/run)" in card
    # the code of the card, on a machine that has nothing but the hub
    code = card.partition("```python\n")[2].partition("```")[0]
    own = {"HF_ENDPOINT": here.url, "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1"}
    own |= {"HF_HUB_OFFLINE": "0", "TRANSFORMERS_OFFLINE": "0", "HF_HOME": str(tmp_path)}
    drawn = subprocess.run(
        [sys.executable, "-c", f"{code}\nprint(image.size)"],
        env=os.environ | own,
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert drawn.stdout == "(64, 64)\n", drawn.stderr


@pytest.mark.slow
def test_a_folder_can_be_kept_as_well(run: Path, here: Hub, tmp_path: Path) -> None:
    assert push(run, "--to", str(tmp_path / "left")) == 0
    kept = {str(path.relative_to(tmp_path / "left")): path for path in tmp_path.rglob("left/**/*")}
    files = {name: path.read_bytes() for name, path in kept.items() if path.is_file()}
    assert files == {path.removeprefix(f"{REPO}/"): data for path, data in here.files.items()}
    assert here.repos == {REPO: False}
    assert push(run) == 0, "a repository that exists gets another commit"


@pytest.mark.slow
def test_a_public_repository_gets_nothing_private(run: Path, here: Hub) -> None:
    here.repos[REPO] = False
    with pytest.raises(UploadError, match=f"{REPO} exists and is public"):
        push(run, "--private")
    assert here.files == {}


@pytest.mark.slow
def test_without_a_token_or_with_a_wrong_one_it_says_to_log_in(
    run: Path, here: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(UploadError, match=f"may not write to {REPO}; type `hf auth login`"):
        push(run)
    monkeypatch.delenv("HF_TOKEN")
    here.requests.clear()
    with pytest.raises(UploadError, match="has no token of the hub; type `hf auth login`"):
        push(run)
    assert here.requests == []


@pytest.mark.slow
@pytest.mark.parametrize("why", ["HF_HUB_OFFLINE", "nobody answers"])
def test_without_a_network_it_says_what_to_type(
    why: str, run: Path, here: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why == "HF_HUB_OFFLINE":
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    else:
        monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UploadError) as refused:
        push(run)
    said = str(refused.value)
    command, upload = said.split("`")[1], said.split("`")[3]
    assert upload == f"hf upload {REPO} red"
    assert command == f"rlfactory export '{run}' --to red"
    assert app.dispatch(["export", str(run), "--to", "red"]) == 0, "as it says"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--push", "red"], "allowed is USER/NAME"),
        (["--push", "team/re d"], "--push: Repo id must"),
        ([], "--to: where to? --to FOLDER, --push USER/NAME"),
        (["--to", "x", "--private"], "--private: goes with --push"),
    ],
)
def test_what_can_not_be_is_refused(
    words: list[str],
    message: str,
    run: Path,
    here: Hub,
    refused: Callable[..., str],
) -> None:
    if words[:1] == ["--push"]:
        with pytest.raises(UploadError, match=re.escape(message)):
            app.dispatch(["export", str(run), *words])
    else:
        assert message in refused("export", str(run), *words)
    assert json.dumps(here.files) == "{}"
