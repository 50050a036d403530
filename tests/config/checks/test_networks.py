"""Modules that LoRA adapts, and the files of rewards' networks."""

from pathlib import Path
from typing import Any

import pytest

from rlfactory.config.checks.networks import require_known_lora_targets, require_reward_files


def targets(path: str, *names: str, finetune: str = "lora") -> list[tuple[str, str]]:
    model = {"path": path, "finetune": finetune, "lora_targets": list(names)}
    return [(p.message, p.fix) for p in require_known_lora_targets({"model": model}, {})]


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("zoo:tiny_sd3", ["to_q", "attn.to_out.0", "transformer_blocks.0.attn.add_q_proj"]),
        ("zoo:tiny_sd", ["attn1.to_q", "to_k"]),
        ("zoo:tiny_flux", ["attn.to_q"]),
        ("zoo:tiny_gpt2", ["c_attn", "mlp.c_fc", "transformer.h.0.attn.c_attn"]),
        ("owner/unknown", ["nothing"]),
        ("object:model", ["nothing"]),
    ],
)
def test_modules_that_there_are(path: str, names: list[str]) -> None:
    assert targets(path, *names) == []
    assert targets(path, "nothing", finetune="full") == []


@pytest.mark.parametrize(
    ("path", "names", "fix"),
    [
        ("zoo:tiny_sd3", ["nothing"], "model.lora_targets=null"),
        ("zoo:tiny_sd3", ["attn.to_qq"], "model.lora_targets=[attn.to_q]"),
        ("zoo:tiny_sd3", ["to_q", "nothing"], "model.lora_targets=[to_q]"),
        ("zoo:tiny_gpt2", ["c_atn"], "model.lora_targets=[attn.c_attn]"),
        ("zoo:tiny_gpt2", ["ln_1"], "model.lora_targets=null"),
    ],
)
def test_modules_that_there_are_none_of(path: str, names: list[str], fix: str) -> None:
    ((message, remedy),) = targets(path, *names)
    assert message.startswith(f"the network has no module {names[-1]}; among its modules are ")
    assert remedy == fix


def files(target: str = "rlfactory.reward.hps.HPS", **options: Any) -> list[str]:
    config = {"reward": {"_target_": target, **options}, "eval_rewards": {}}
    return [f"{p.key}: {p.message}" for p in require_reward_files(config, {"reward": {}})]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"path": "/no/where"}, "reward.path: /no/where does not exist"),
        ({"path": "./none"}, "reward.path: ./none does not exist"),
        ({"processor": "~/none"}, "reward.processor: ~/none does not exist"),
        ({"head": "none.pth"}, "reward.head: none.pth does not exist"),
        ({"path": "zoo:none"}, "reward.path: zoo:none does not ship"),
        ({"path": "owner/name"}, ""),
        ({"path": "owner/name/file.pt"}, ""),
        ({"path": "gpt2"}, ""),
        ({"path": "zoo:sentiment"}, ""),
        ({"path": None, "output": "/no/where"}, ""),
        ({"target": "mine.Reward", "path": "/no/where"}, ""),
    ],
)
def test_files_of_rewards(
    options: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRANSFORMERS_OFFLINE", raising=False)
    found = files(**options)
    assert len(found) == bool(said)
    assert all(line.startswith(said) for line in found)


def test_what_was_not_downloaded_is_said_where_no_network_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    (line,) = files(path="owner/name/file.pt")
    assert "HF_HUB_OFFLINE is set" in line
    assert "hf download owner/name" in line
