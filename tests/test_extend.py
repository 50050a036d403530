"""The complete examples of docs/extend: their files, written elsewhere, train as plug-ins."""

import re
import shlex
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from diffusers import (
    AuraFlowPipeline,
    AuraFlowTransformer2DModel,
    FlowMatchEulerDiscreteScheduler,
    StableDiffusion3Pipeline,
)
from transformers import UMT5Config, UMT5EncoderModel
from warm_process import Warm

from rlfactory.model.pipelines.local_models import zoo_path

pytestmark = pytest.mark.slow
Command = Callable[..., subprocess.CompletedProcess[str]]

PAGES = Path(__file__).parents[1] / "docs" / "extend"
NAMES = ["reward", "algorithm", "text_algorithm", "dynamics", "model", "prompts", "logger"]
SMALL = [
    *("iterations=1", "prompts_per_iteration=2", "group_size=4", "run_dir=run", "schedule.steps=4"),
    *("evaluation.prompts=4", "evaluation.grid=4", "checkpoint.minutes=0"),
]


def blocks(page: str, language: str) -> list[str]:
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)```", text, re.DOTALL | re.MULTILINE)


def write_files(page: str, folder: Path) -> None:
    """Each block as it is copied: of Python a comment names the file, of YAML the line before."""
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    named = [(re.match(r"# (\S+)", block)[1], block) for block in blocks(page, "python")]
    for name, block in named + re.findall(r"`(\S+)`:\n\n```yaml\n(.*?)```", text, re.DOTALL):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block, encoding="utf-8")


def lines(page: str, folder: Path) -> list[list[str]]:
    """The words of each command of a page, with paths that lead into `folder`."""
    return [
        shlex.split(line.replace("/data", str(folder)), comments=True)[1:]
        for block in blocks(page, "bash")
        for line in block.strip().splitlines()
    ]


def save_aura_flow(folder: Path) -> None:
    """A small random AuraFlow, with tokenizer and autoencoder of the shipped SD3."""
    sd3 = StableDiffusion3Pipeline.from_pretrained(zoo_path("tiny_sd3"))
    config = UMT5Config(
        vocab_size=len(sd3.tokenizer_3), d_model=16, d_ff=16, d_kv=8, num_heads=2, num_layers=1
    )
    network = AuraFlowTransformer2DModel(
        sample_size=8,
        in_channels=16,
        out_channels=16,
        num_mmdit_layers=1,
        num_single_dit_layers=1,
        attention_head_dim=8,
        num_attention_heads=2,
        joint_attention_dim=16,
        caption_projection_dim=16,
        pos_embed_max_size=64,
    )
    AuraFlowPipeline(
        tokenizer=sd3.tokenizer_3,
        text_encoder=UMT5EncoderModel(config),
        vae=sd3.vae,
        transformer=network,
        scheduler=FlowMatchEulerDiscreteScheduler(shift=1.73),
    ).save_pretrained(folder)


def prepare(page: str, folder: Path) -> list[str]:
    """What an example needs beside its files; the words that make its run small."""
    if page == "prompts":
        names = ["a cat", "a dog", "an owl", "a fox", "a bee", "an ant"]
        rows = [f"{name},{i}" for i, name in enumerate(names)]
        (folder / "animals.csv").write_text("\n".join(["prompt,number", *rows]))
    if page == "model":
        save_aura_flow(folder / "aura_flow")
        return [*SMALL, "model.size=64", "model.text_tokens=16", "model.lora_rank=4"]
    return SMALL


STARTED = "reward"
"""The page whose training is started as a shell does; other commands are forked."""


@pytest.fixture
def typed(warm: Warm, tmp_path: Path) -> Command:
    """Runs a page's command in the folder of its files."""
    return partial(warm.command, tmp_path)


@pytest.mark.parametrize("page", NAMES)
def test_the_example_trains_and_its_other_commands_work(
    page: str, tmp_path: Path, typed: Command, command: Command
) -> None:
    write_files(page, tmp_path)
    small = prepare(page, tmp_path)
    train, *others = lines(page, tmp_path)
    for words in others:
        plans = words[0].startswith(("check", "list", "explain"))
        shown = typed(*words) if plans else typed("check", *words)
        assert shown.returncode == 0, shown.stderr
    ran = (command if page == STARTED else typed)(*train, *small)
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "run" / "STATUS").read_text().strip() == "done"
    metrics = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert {"reward": "symmetry", "algorithm": "weight/mean"}.get(page, "reward/") in metrics
    assert (tmp_path / "run" / "metrics.csv").is_file() == (page == "logger")


@pytest.mark.parametrize("page", NAMES)
def test_without_trust_the_example_is_refused(page: str, tmp_path: Path, typed: Command) -> None:
    write_files(page, tmp_path)
    train, *_ = lines(page, tmp_path)
    refused = typed("check", *[word for word in train if not word.startswith("trust=")])
    assert refused.returncode == 2
    assert "trust=[my_" in refused.stderr


def test_the_example_of_a_listener_runs(warm: Warm, tmp_path: Path) -> None:
    (code,) = blocks("listener", "python")
    small = '"prompts_per_iteration=2", "group_size=4", "evaluation.prompts=4", "iterations=3"'
    assert code.count('"iterations=3"') == 1
    script = tmp_path / "best_prompts.py"
    script.write_text(code.replace('"iterations=3"', small), encoding="utf-8")
    ran = warm.command(tmp_path, script=str(script))
    assert ran.returncode == 0, ran.stderr
    (line,) = [line for line in ran.stdout.splitlines() if line.startswith("done [")]
    assert line.count("a ") >= 3
