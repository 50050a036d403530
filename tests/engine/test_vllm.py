"""The calls to vLLM, by a stand-in of its module; the real one is not among the requirements."""

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from rlfactory.engine.base import EngineError, SamplingSettings
from rlfactory.engine.vllm import Vllm
from rlfactory.model.causal_lm import CausalLM

SETTINGS = SamplingSettings(length=4, temperature=0.5, stop=(0, 3))


class FakeLLM:
    """Returns what it was told to, and keeps what it was asked."""

    def __init__(self, model: str, **options: Any) -> None:
        if options["max_model_len"] == 1:
            raise ValueError("max_model_len is too small")
        self.model, self.options, self.calls = model, options, list[Any]()
        assert (Path(model) / "model.safetensors").is_file()
        assert (Path(model) / "tokenizer_config.json").is_file()

    def collective_rpc(self, name: str, kwargs: dict[str, Any]) -> None:
        assert name == "reload_weights"
        assert kwargs == {"weights_path": self.model}

    def generate(self, prompts: Any, parameters: Any, use_tqdm: bool) -> list[Any]:
        self.calls += [prompts, parameters, use_tqdm]
        if prompts[0]["prompt_token_ids"] == [9]:
            raise RuntimeError("engine core died")
        rows = [{5: SimpleNamespace(logprob=-1.0)}, {3: SimpleNamespace(logprob=-2.0)}]
        return [SimpleNamespace(outputs=[SimpleNamespace(token_ids=[5, 3], logprobs=rows)])]


@pytest.fixture
def model(gpt2_folder: Path, monkeypatch: pytest.MonkeyPatch) -> CausalLM:
    fake: Any = ModuleType("vllm")
    fake.LLM, fake.SamplingParams = FakeLLM, lambda **options: options
    monkeypatch.setitem(sys.modules, "vllm", fake)
    return CausalLM(torch.device("cpu"), path=str(gpt2_folder))


def test_prompts_seeds_and_settings_reach_it(model: CausalLM) -> None:
    engine = Vllm(context=64, options={"swap_space": 1})
    engine.open(model)
    folder = Path(engine._llm.model)
    assert engine._llm.options["logprobs_mode"] == "processed_logprobs"
    assert engine._llm.options["dtype"] == "float32"
    assert engine._llm.options["swap_space"] == 1
    engine.load(model)
    (drawn,) = engine.generate([[1, 2]], [7], SETTINGS)
    assert (drawn.ids, drawn.log_probs) == ([5, 3], [-1.0, -2.0])
    prompts, (parameters,), _ = engine._llm.calls
    assert prompts == [{"prompt_token_ids": [1, 2]}]
    assert parameters["seed"] == 7
    assert parameters["logit_bias"] is None
    engine.generate([[1, 2]], [7], replace(SETTINGS, unused=(300, 301)))
    assert engine._llm.calls[-2][0]["logit_bias"] == {300: -100.0, 301: -100.0}
    assert parameters["stop_token_ids"] == [0, 3]
    assert (parameters["max_tokens"], parameters["temperature"]) == (4, 0.5)
    engine.close()
    engine.close()
    assert not folder.exists()


def test_what_goes_wrong_is_an_engine_error(
    model: CausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EngineError, match="can't start: max_model_len is too small"):
        Vllm(context=1).open(model)
    engine = Vllm(context=64)
    engine.open(model)
    with pytest.raises(EngineError, match="stopped: engine core died; the run can be resumed"):
        engine.generate([[9]], [7], SETTINGS)
    engine.close()
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(EngineError, match="can't be imported"):
        Vllm().open(model)
