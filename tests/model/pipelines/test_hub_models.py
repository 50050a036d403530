"""Errors of the hub become messages that say what to type."""

import importlib
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from diffusers import FluxPipeline
from huggingface_hub import HfApi
from huggingface_hub.constants import ENDPOINT
from huggingface_hub.errors import (
    GatedRepoError,
    HTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)

from rlfactory.model.lm.critic import ValueModel
from rlfactory.model.lm.loading import load_language_model
from rlfactory.model.pipelines import hub_models as hub
from rlfactory.model.pipelines.hub_models import explained, unreachable
from rlfactory.model.pipelines.pipeline_loading import load_pipeline
from rlfactory.utils.errors import ModelError

ID = "owner/some-model"
# whichever library asks for huggingface_hub
httpx = importlib.import_module(HTTPError.__module__.split(".")[0])
RESPONSE = httpx.Response(403, request=httpx.Request("GET", "https://hub"))


def says(error: Exception) -> Callable[..., None]:
    def answer(*_: object, **__: object) -> None:
        raise error

    return answer


ANSWERS = {
    "gated": (
        GatedRepoError("403", response=RESPONSE),
        ["is gated", "hf auth login", f"{ENDPOINT}/{ID}"],
    ),
    "missing": (
        RepositoryNotFoundError("404", response=RESPONSE),
        ["knows no such model", "hf auth login", "spelling"],
    ),
    "offline": (
        OfflineModeIsEnabled("offline"),
        ["HF_HUB_OFFLINE is set", f"hf download {ID}", "hf auth login"],
    ),
    "no network": (
        httpx.ConnectError("Name or service not known"),
        ["(Name or service not known)", f"hf download {ID}"],
    ),
    "slow": (httpx.ReadTimeout("timed out"), ["(timed out)", f"hf download {ID}"]),
}
LOADERS: dict[str, tuple[str, Callable[[], object]]] = {
    "pipeline": ("model.path", lambda: load_pipeline(FluxPipeline, ID, torch.float32)),
    "language model": ("model.path", lambda: load_language_model(ID)),
    "value model": ("model.value_path", lambda: ValueModel(ID, None)),
}


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that somebody fetched takes part, and nothing is asked of a network."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("answer", ANSWERS)
def test_what_was_tried_and_what_to_type_is_said_at_once(
    answer: str, loader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error, words = ANSWERS[answer]
    key, load = LOADERS[loader]
    monkeypatch.setattr(HfApi, "model_info", says(error))
    began = time.monotonic()
    with pytest.raises(ModelError, match=rf"^{key}={ID} ?\S") as raised:
        load()
    assert time.monotonic() - began < 20
    for word in [*words, f"{key}=FOLDER"]:
        assert word in str(raised.value)
    if answer in ("offline", "no network", "slow"):
        assert str(tmp_path) in str(raised.value)


def test_files_that_are_gated_behind_open_words_are_explained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # the hub tells everyone about a gated model, and refuses its files alone
    monkeypatch.setattr(HfApi, "model_info", lambda *_, **__: None)
    gated = says(GatedRepoError("403", response=RESPONSE))
    monkeypatch.setattr(FluxPipeline, "download", gated)
    with pytest.raises(ModelError, match="is gated"):
        load_pipeline(FluxPipeline, ID, torch.float32)


def test_the_hub_is_asked_once_and_with_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def answer(_: HfApi, __: str, *, timeout: float) -> None:
        asked.append(timeout)
        raise httpx.ConnectError("no")

    monkeypatch.setattr(HfApi, "model_info", answer)
    with pytest.raises(ModelError):
        load_language_model(ID)
    assert asked == [hub.TIMEOUT]


def test_a_folder_asks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HfApi, "model_info", says(AssertionError("asked")))
    assert unreachable(str(tmp_path)) is None


def test_what_is_here_loads_without_the_hub(
    tmp_path: Path, gpt2_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HfApi, "model_info", says(OfflineModeIsEnabled("offline")))
    kept = tmp_path / f"models--{ID.replace('/', '--')}"
    shutil.copytree(gpt2_folder, kept / "snapshots" / "abc")
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text("abc")
    began = time.monotonic()
    network, _ = load_language_model(ID)
    assert time.monotonic() - began < 20
    assert network.config.n_layer == 2


@pytest.mark.parametrize(
    "error", [ValueError("torn"), RuntimeError("another shape"), ImportError("bitsandbytes")]
)
def test_what_has_nothing_to_do_with_the_hub_is_told_as_it_is(error: Exception) -> None:
    said = f"model.path={ID} could not be loaded as a model: {error}"
    with pytest.raises(ModelError, match=said), explained(ID, "a model"):
        raise error
