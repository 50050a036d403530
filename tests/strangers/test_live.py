"""Objects that strangers hand to `rl.train`: a run, or an error that says what to hand over."""

import runpy

import pytest
from cases import python_cases
from transformers import AutoModelForCausalLM, AutoTokenizer

import rlfactory as rl
from rlfactory.model.pipelines.local_models import zoo_path
from rlfactory.utils.errors import UserError

SMALL = [
    *("iterations=1", "prompts_per_iteration=2", "group_size=2", "updates_per_iteration=1"),
    *("evaluation.prompts=2", "evaluation.grid=2", "evaluation.preview_every=0", "hardware=cpu"),
    "dynamics.length=4",
]


@pytest.fixture(scope="module")
def language_model():
    folder = zoo_path("tiny_gpt2")
    return AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


def shortness(completions, **columns):
    return [-float(len(text)) for text in completions]


@pytest.mark.parametrize("path", python_cases("live"))
def test_right_or_one_line(path, tmp_path, language_model):
    model, tokenizer = language_model
    case = runpy.run_path(str(path))
    objects = {"model": model, "tokenizer": tokenizer, "reward": shortness}
    objects |= {"prompts": ["the film is", "the plot"], **case["given"](model, tokenizer)}
    if "SAYS" not in case:
        run = rl.train(*SMALL, **objects, run_dir=tmp_path / "run")
        assert run.status == "done"
        assert case.get("LOGS", "") in (tmp_path / "run" / "log.txt").read_text()
        config = (tmp_path / "run" / "config.yaml").read_text()
        assert all(text in config for text in case.get("HOLDS", []))
        return
    with pytest.raises(UserError) as raised:
        rl.train(*SMALL, **objects, run_dir=tmp_path / "run")
    said = str(raised.value)
    assert case["SAYS"] in said
    assert len(said.splitlines()) <= 10
