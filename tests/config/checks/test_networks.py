"""Modules that LoRA adapts."""

import pytest

from rlfactory.config.checks.networks import require_known_lora_targets


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
