"""Restoring a run's components for a tool."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlfactory.tools import restore


def test_no_engine_is_started_for_what_our_own_loop_draws(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    built: list[Any] = []

    def build(config: Any) -> Any:
        built.append(config["engine"])
        return SimpleNamespace(model=SimpleNamespace(weights=set()))

    monkeypatch.setattr(restore, "single_process_config", lambda config: config)
    monkeypatch.setattr(restore, "build", build)
    monkeypatch.setattr(restore, "load_checkpoint", lambda folder, model: None)
    monkeypatch.setattr(restore, "build_evaluator", lambda *_: None)
    config = {"engine": {"_target_": "rlfactory.engine.vllm_server.VllmServer"}}
    restore.restored_components(tmp_path, config, ["ema"])
    assert built == [{"_target_": "rlfactory.engine.own.Own"}]
