"""`rlfactory verify` on a good run, and on one with each of 56 planted differences."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from rlfactory.cli.app import dispatch
from rlfactory.cli.run_commands import require_run
from rlfactory.config.problems import PlanError
from rlfactory.run.checkpoint.checksums import read_manifest, write_manifest
from rlfactory.run.folder import RunFolder
from rlfactory.tools.verify import (
    config_differences,
    find_stretch,
    remake,
    stretch_differences,
    verify,
)

WORDS = (
    *("hardware=cpu", "model=tiny_sd3", "model.size=32", "schedule.steps=3", "algo=nft"),
    "model.finetune=lora",
    *("iterations=3", "prompts_per_iteration=2", "group_size=3", "evaluation.prompts=2"),
    *("evaluation.grid=2", "evaluation.every=1", "checkpoint.every=2", "checkpoint.keep=null"),
    *("checkpoint.minutes=0", "checkpoint.best=false", "regularizer=kl_v"),
)
END, BEGIN = "step_000003", "step_000002"
WEIGHTS, MOMENTS = "weights.safetensors", "optimizer.safetensors"
Plant = Callable[[Path], None]


@pytest.fixture(scope="module")
def run(undrawn: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("verified") / "run"
    assert dispatch([*WORDS, f"run_dir={path}"]) == 0
    return path


@pytest.fixture(scope="module")
def again(run: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = RunFolder(run)
    place = tmp_path_factory.mktemp("again") / "run"
    return remake(folder, require_run(run), find_stretch(folder, None), {}, place)


@pytest.mark.slow
def test_a_run_is_verified(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    assert dispatch(["verify", str(run)]) == 0
    assert "verified: iterations 3 to 3 give the same bits" in capsys.readouterr().out
    for iteration, words in ((1, "iterations 1 to 1"), (2, "iterations 1 to 2")):
        assert dispatch(["verify", str(run), "--iteration", str(iteration)]) == 0
        assert words in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


@pytest.mark.slow
def test_a_layout_is_verified(
    undrawn: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert dispatch([*WORDS, "iterations=1", "hardware.tile=4", f"run_dir={run}"]) == 0
    layout = ["hardware=cpu", "hardware.threads=2", "micro_batch=3", "sample_batch=1"]
    assert dispatch(["verify", str(run), "--layout", *layout]) == 0, capsys.readouterr().out
    with pytest.raises(PlanError, match=r"hardware.KEY"):
        dispatch(["verify", str(run), "--layout", "seed=3"])
    capsys.readouterr()
    assert dispatch(["verify", str(run), "--layout", "hardware.tile=2"]) == 1
    said = capsys.readouterr().out
    assert "weights.safetensors: " in said, "another tile has other bits"
    assert "gives other bits for the same row" in said, "some processors' rows, all gradients"


@pytest.mark.slow
def test_what_there_is_not_is_said(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatch(["verify", str(run), "--iteration", "9"]) == 1
    assert "the last checkpoint is of iteration 3" in capsys.readouterr().err


def sign(checkpoint: Path) -> None:
    """Write the manifest again, as somebody would who hides what was changed."""
    about = read_manifest(checkpoint)
    about.pop("files")
    about.pop("format")
    (checkpoint / "MANIFEST.json").unlink()
    write_manifest(checkpoint, about)


def tensors(step: str, file: str, change: Callable[[dict[str, torch.Tensor]], None]) -> Plant:
    def plant(run: Path) -> None:
        checkpoint = run / "checkpoints" / step
        content = load_file(checkpoint / file)
        change(content)
        save_file(content, checkpoint / file)
        sign(checkpoint)

    return plant


def bit(which: int, position: int = 0, mask: int = 1) -> Callable[[dict[str, torch.Tensor]], None]:
    def change(content: dict[str, torch.Tensor]) -> None:
        name = sorted(content)[which]
        content[name] = content[name].clone()
        content[name].view(-1).view(torch.uint8)[position] ^= mask

    return change


def replaced(
    which: int, make: Callable[[torch.Tensor], torch.Tensor]
) -> Callable[[dict[str, torch.Tensor]], None]:
    def change(content: dict[str, torch.Tensor]) -> None:
        name = sorted(content)[which]
        content[name] = make(content[name]).contiguous()

    return change


def without(content: dict[str, torch.Tensor]) -> None:
    del content[min(content)]


def with_another(content: dict[str, torch.Tensor]) -> None:
    content["policy/another"] = torch.zeros(2)


def state(step: str, change: Callable[[dict[str, Any]], None]) -> Plant:
    def plant(run: Path) -> None:
        path = run / "checkpoints" / step / "state.json"
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content, indent=1) + "\n")
        sign(path.parent)

    return plant


def metric(change: Callable[[list[dict[str, Any]]], None]) -> Plant:
    def plant(run: Path) -> None:
        path = run / "metrics.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        change(lines)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    return plant


def last(kind: str, name: str, value: Any) -> Plant:
    """Another value of a metric in the last line that has it."""

    def change(lines: list[dict[str, Any]]) -> None:
        line = [line for line in lines if kind in line][-1]
        key = next(key for key in sorted(line) if key.startswith(name))
        line[key] = value(line[key]) if callable(value) else value

    return metric(change)


def config(**values: Any) -> Plant:
    def plant(run: Path) -> None:
        path = run / "config.yaml"
        path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | values))

    return plant


def everywhere(**values: Any) -> Plant:
    """Another configuration in config.yaml and in the checkpoints, so that nothing contradicts."""

    def plant(run: Path) -> None:
        config(**values)(run)
        for step in (BEGIN, END):
            state(step, lambda content: content["config"].update(values))(run)

    return plant


def evaluation(change: Callable[[dict[str, Any]], None]) -> Plant:
    def plant(run: Path) -> None:
        path = run / "evaluations" / "000003.json"
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))

    return plant


def exported(run: Path) -> None:
    checkpoint = run / "checkpoints" / END
    others = (p for p in checkpoint.rglob("*.safetensors") if p.name not in (WEIGHTS, MOMENTS))
    path = next(others)
    content = load_file(path)
    bit(0)(content)
    save_file(content, path)
    sign(checkpoint)


def raised(key: str) -> Callable[[dict[str, Any]], None]:
    return lambda content: content.update({key: content[key] + 1})


def option(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["optimizer"]["param_groups"][0].update({name: value})


def reward_of_first(content: dict[str, Any]) -> None:
    scores = content["scores"]
    name = min(scores)
    scores[name][0] = (scores[name][0] or 0) + 1e-12


ENDS: dict[str, Plant] = {
    **{f"weight {i}": tensors(END, WEIGHTS, bit(i)) for i in (0, 1, 2, 7, 20, -20, -7, -1)},
    "sign of a weight": tensors(END, WEIGHTS, bit(3, position=3, mask=128)),
    "weight is NaN": tensors(END, WEIGHTS, replaced(0, lambda t: t * torch.nan)),
    "other type": tensors(END, WEIGHTS, replaced(0, lambda t: t.half())),
    "other shape": tensors(END, WEIGHTS, replaced(0, lambda t: t.reshape(-1))),
    "no weight": tensors(END, WEIGHTS, without),
    "another weight": tensors(END, WEIGHTS, with_another),
    **{f"moment {i}": tensors(END, MOMENTS, bit(i)) for i in (0, 1, 2, 5, -5, -1)},
    "moments are 0": tensors(END, MOMENTS, replaced(0, torch.zeros_like)),
    "no moment": tensors(END, MOMENTS, without),
    "updates": state(END, raised("updates")),
    "evaluations": state(END, raised("evaluations")),
    "skipped": state(END, raised("skipped")),
    "iterations": state(END, raised("iterations")),
    "new key": state(END, lambda content: content.update(more=1)),
    "learning rate of the optimizer": state(END, option("lr", 1e-3)),
    "betas": state(END, option("betas", [0.5, 0.5])),
    "weight decay": state(END, option("weight_decay", 0.5)),
    "loss": last("loss/policy", "loss", lambda value: value + 1e-9),
    "reward": last("loss/policy", "reward/", lambda value: value + 1e-9),
    "null": last("loss/policy", "loss", None),
    "gradient": last("loss/policy", "grad", lambda value: value * (1 + 1e-12)),
    "score of an evaluation": last("eval/shapes/mean", "eval/shapes/mean", lambda v: v + 1e-9),
    "line is gone": metric(lambda lines: lines.pop()),
    "line is there twice": metric(lambda lines: lines.append(lines[-1])),
    "iteration of a line": metric(lambda lines: lines[-1].update(iteration=4)),
    "metric is gone": metric(lambda lines: lines[-2].pop("grad/norm")),
    "another metric": metric(lambda lines: lines[-1].update(better=1.0)),
    "score in a file": evaluation(reward_of_first),
    "prompt in a file": evaluation(lambda content: content["prompts"].reverse()),
    "export": exported,
    "seed of config.yaml": config(seed=1),
    "micro-batch of config.yaml": config(micro_batch=7),
    "epochs of config.yaml": config(epochs=2),
    "config of the state": state(END, lambda content: content["config"].update(seed=3)),
    "config of the begin": state(BEGIN, lambda content: content["config"].update(seed=3)),
}
BEGINS: dict[str, Plant] = {
    "weight": tensors(BEGIN, WEIGHTS, replaced(0, lambda t: t + 1e-3)),
    "last weight": tensors(BEGIN, WEIGHTS, replaced(-1, lambda t: t + 1e-3)),
    "moment": tensors(BEGIN, MOMENTS, replaced(0, lambda t: t + 1e-3)),
    "updates": state(BEGIN, raised("updates")),
    "random numbers": everywhere(seed=5),
    "prompts": everywhere(prompts_per_iteration=3),
    "clipping": everywhere(max_grad_norm=1e-6),
}


@pytest.mark.slow
def test_there_are_50_planted_differences() -> None:
    assert len(ENDS) + len(BEGINS) >= 50


@pytest.fixture
def planted(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "run"))


@pytest.mark.slow
def test_nothing_is_found_where_nothing_is_planted(run: Path, again: RunFolder) -> None:
    folder = RunFolder(run)
    stretch = find_stretch(folder, None)
    assert [*config_differences(folder, require_run(run), stretch)] == []
    assert [*stretch_differences(folder, again, stretch)] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ENDS)
def test_what_is_planted_in_the_end_is_found(name: str, planted: Path, again: RunFolder) -> None:
    folder = RunFolder(planted)
    stretch = find_stretch(folder, None)
    ENDS[name](planted)
    found = [*config_differences(folder, require_run(planted), stretch)]
    found += stretch_differences(folder, again, stretch)
    assert found, name


@pytest.mark.slow
@pytest.mark.parametrize("name", BEGINS)
def test_what_is_planted_in_the_begin_is_found(
    name: str, planted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    BEGINS[name](planted)
    assert verify(planted, require_run(planted), None) == 1
    out = capsys.readouterr().out
    assert "are not what the folder holds" in out
    assert "weights.safetensors: " in out, "the first tensor is named"
    assert "other than then: nothing that is recorded" in out


@pytest.mark.slow
def test_a_damaged_checkpoint_is_named(planted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = planted / "checkpoints" / END / WEIGHTS
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert dispatch(["verify", str(planted)]) == 1
    assert f"{END} is damaged" in capsys.readouterr().err


@pytest.mark.slow
def test_another_environment_is_named(planted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tensors(END, WEIGHTS, bit(0))(planted)
    checkpoint = planted / "checkpoints" / END
    about = read_manifest(checkpoint)
    about["numerics"] |= {"threads": 64, "cpu_capability": "NEON"}
    about["versions"]["torch"] = "1.0"
    del about["files"], about["format"]
    write_manifest(checkpoint, about)
    assert verify(planted, require_run(planted), None) == 1
    out = capsys.readouterr().out
    for words in ("threads: 64 then", "vector instructions of the CPU: NEON then", "torch: 1.0"):
        assert words in out


@pytest.mark.slow
def test_resuming_says_what_has_changed(planted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = planted / "checkpoints" / END
    about = read_manifest(checkpoint)
    about["numerics"]["threads"] = 64
    del about["files"], about["format"]
    write_manifest(checkpoint, about)
    assert dispatch(["resume", str(planted), "--until", "4"]) == 0
    assert "was made elsewhere, so bits may differ (threads: 64 then" in capsys.readouterr().out
