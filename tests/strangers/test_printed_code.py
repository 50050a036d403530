"""The printed generation code draws from the policy's distribution, whatever the base's files set.

Keys of a case: `why`; `kind` of tiny language model; `generation`, the base's generation_config;
`words`, further words of the run; `rows` of its embedding; `merge`.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from cases import CASES
from safetensors.torch import load_file
from tiny_language_models import save_language_model
from torch import Tensor
from transformers import AutoModelForCausalLM, GenerationConfig

from rlfactory.config.overrides import compose
from rlfactory.config.plan import make_plan
from rlfactory.run.checkpoint.save import begin_checkpoint
from rlfactory.run.folder import RunFolder
from rlfactory.tools.export.command import ExportOptions, export_run
from rlfactory.train.build import instantiate_group

FRESH = Path(__file__).with_name("printed_code.py")
NAMES = sorted(path.stem for path in (CASES / "printed_code").glob("*.yaml"))
PROMPT = "a red circle"  # of an export without evaluations
Drawn = tuple[Any, Any, dict[str, Tensor]]
TINY = [
    *("model=gpt2", "reward=length", "hardware=cpu", "recipe=none", "model.finetune=lora"),
    *("model.lora_targets=null", "dynamics.length=8", "model.begin_with_end=false"),
]


def written(case: dict[str, Any], place: Path) -> tuple[Any, Any, dict[str, str]]:
    """The run's model and dynamics, and what the fresh process is to do."""
    base = save_language_model(place / "base", case.get("kind", "qwen3"))
    if "rows" in case:
        with torch.random.fork_rng():
            network = AutoModelForCausalLM.from_pretrained(base)
            network.resize_token_embeddings(case["rows"])
            network.save_pretrained(base)
    (base / "generation_config.json").write_text(json.dumps(case["generation"]))
    composed = compose([*TINY, f"model.path={base}", *case.get("words", [])])
    run = RunFolder(place / "run")
    run.path.mkdir(parents=True)
    run.config.write_text(make_plan(composed.values, composed.choices).frozen())
    config = yaml.safe_load(run.config.read_text())
    model = instantiate_group(config, "model", device=torch.device("cpu"), seed=0)
    with torch.no_grad():
        for parameter in model.weights.parameters.values():
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator())
    begin_checkpoint(run.checkpoints / "step_000001", model, "policy", {})()
    merge = case.get("merge", False)
    options = ExportOptions("policy", merge)
    code = export_run(run, config, run.checkpoints / "step_000001", place / "to", options)
    if merge:
        left = GenerationConfig.from_pretrained(place / "to")
        assert (left.repetition_penalty, left.temperature) in ((None, 1.5), (1.0, 1.5))
    return model, instantiate_group(config, "dynamics"), {"code": code, "out": str(place / "out")}


@pytest.fixture(scope="module")
def drawn(
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, tuple[Any, Any, dict[str, Tensor]]]:
    """Of each case the model, the dynamics, and what one fresh process drew."""
    place = tmp_path_factory.mktemp("printed")
    cases = {n: yaml.safe_load((CASES / "printed_code" / f"{n}.yaml").read_text()) for n in NAMES}
    ours = {name: written(case, place / name) for name, case in cases.items()}
    (place / "jobs.json").write_text(json.dumps([job for *_, job in ours.values()]))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(
        [sys.executable, str(FRESH), str(place / "jobs.json")],
        env=environment | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return {name: (m, d, load_file(job["out"])) for name, (m, d, job) in ours.items()}


@pytest.mark.parametrize("name", NAMES)
def test_it_draws_from_the_policys_distribution(name: str, drawn: Any) -> None:
    model, dynamics, found = drawn[name]
    ids, prompt = found["tokens"], found["prompt"]
    shown = model.prompts.prompt_ids([PROMPT])
    assert prompt.tolist() == shown
    with torch.no_grad():
        logits = model.network(ids).logits[0, prompt.shape[1] - 1 : -1]
    logits[:, [*model.unused_ids]] = -torch.inf
    # what a step draws from; its likelihoods are of the distribution before truncation
    expected = dynamics._truncated(dynamics.log_probs(logits))
    torch.testing.assert_close(found["scores"], expected, rtol=0, atol=1e-4)


def test_it_ends_at_a_stop_text_and_nowhere_else(drawn: Any) -> None:
    model, dynamics, found = drawn["stop"]
    response = found["tokens"][0, found["prompt"].shape[1] :].tolist()
    texts = [model.tokenizer.decode([token]) for token in response]
    assert texts[-1] in dynamics.stop
    assert not {*dynamics.stop} & {*texts[:-1]}


def test_ids_that_no_token_has_are_never_drawn(drawn: Any) -> None:
    model, _, found = drawn["padded_vocabulary"]
    assert len(model.unused_ids) > 40
    assert found["scores"][:, [*model.unused_ids]].isneginf().all()


def test_stop_texts_as_tokens_are_end_tokens(drawn: Any) -> None:
    model, dynamics, found = drawn["stop_tokens"]
    ends = [model.tokenizer.convert_tokens_to_ids(text) for text in dynamics.stop]
    response = found["tokens"][0, found["prompt"].shape[1] :].tolist()
    assert response[-1] in ends
    assert not {*ends} & {*response[:-1]}
