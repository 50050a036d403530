"""The dtypes of a network, and replayed steps with a ratio of 1."""

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.backends import cudnn
from torch.profiler import ProfilerActivity, profile

from rlfactory.config.overrides import compose
from rlfactory.config.plan import make_plan
from rlfactory.dynamics.base import Dynamics
from rlfactory.dynamics.ddim import DDIM
from rlfactory.dynamics.flow_sde import FlowSDE
from rlfactory.model.base import ImageModel
from rlfactory.model.flux import Flux
from rlfactory.model.memory import Memory
from rlfactory.model.precision import Precision
from rlfactory.model.sd import SD
from rlfactory.model.sd3 import SD3
from rlfactory.rollout import Condition, Transitions
from rlfactory.train.build import build, training_budget
from rlfactory.train.components import NoProgress
from rlfactory.train.sampling.trajectories import RolloutSpec, sample_with_transitions
from rlfactory.train.trainer import Trainer
from rlfactory.utils.errors import TrainingError
from rlfactory.utils.pytree import require

CPU = torch.device("cpu")
FAMILIES = ["sd", "sd3", "flux"]
PROMPTS = ["a red circle", "two blue stars"]
Make = Callable[..., ImageModel]


@pytest.fixture
def make(sd_folder: Path, sd3_folder: Path, flux_folders: dict[str, Path]) -> Make:
    """An adapter of a family on its random pipeline."""
    kinds: dict[str, tuple[type[Any], Path, dict[str, object]]] = {
        "sd": (SD, sd_folder, {"guidance": 1.0}),
        "sd3": (SD3, sd3_folder, {"text_tokens": 16}),
        "flux": (Flux, flux_folders["dev"], {"text_tokens": 16}),
    }

    def adapter(
        family: str,
        precision: Precision | None = None,
        memory: Memory | None = None,
        **options: object,
    ) -> ImageModel:
        kind, folder, own = kinds[family]
        made: ImageModel = kind(
            CPU, 0, precision, memory, path=str(folder), size=64, **(own | options)
        )
        return made

    return adapter


def dynamics_of(model: ImageModel) -> Dynamics:
    if isinstance(model, SD):
        return DDIM(model.forward_process)
    return FlowSDE(noise_level=0.7)


def rolled(model: ImageModel, dynamics: Dynamics) -> tuple[Condition, Transitions]:
    """Two samples of four steps, two of them drawn."""
    generator = torch.Generator().manual_seed(0)
    shape = (2, *model.resolution.shape)
    start, noise = (torch.randn(s, generator=generator) for s in (shape, (2, 2, *shape[1:])))
    condition, times = model.encode(PROMPTS), torch.tensor([1.0, 0.8037, 0.6, 0.3, 0.0])
    with model.precision.sampling():
        _, kept = sample_with_transitions(
            model, condition, start, times, RolloutSpec(dynamics, [0, 2], noise)
        )
    return condition, kept


def replayed(model: ImageModel, dynamics: Dynamics, kept: Transitions, condition: Condition) -> Any:
    """The same steps as learning finds them, with a gradient."""
    steps = []
    for i in range(kept.t.shape[1]):
        x, t, t_next = kept.x[:, i], kept.t[:, i], kept.t_next[:, i]
        prediction = model.predict(x, t, condition)
        step = dynamics.step(x, prediction, t, t_next, next=kept.next[:, i])
        steps.append(require(step.log_prob, "a likelihood"))
    return torch.stack(steps, dim=1)


def calls(model: ImageModel) -> list[str]:
    """The dtypes in which the network's largest layers answer, from now on."""
    seen: list[str] = []

    def note(_module: object, _inputs: object, output: Tensor) -> None:
        seen.append(str(output.dtype).removeprefix("torch."))

    for module in model.network.modules():
        if isinstance(module, nn.Linear) and module.in_features == module.out_features:
            module.register_forward_hook(note)
    return seen


@pytest.mark.parametrize(
    ("finetune", "guidance"),
    [
        *(("lora", 1.0), ("full", 4.5)),
        *(pytest.param(*pair, marks=pytest.mark.slow) for pair in (("lora", 4.5), ("full", 1.0))),
    ],
)
@pytest.mark.parametrize("family", FAMILIES)
def test_in_float32_a_replayed_step_is_bit_for_bit_the_one_that_was_drawn(
    make: Make, family: str, guidance: float, finetune: str, train: Callable[[ImageModel], None]
) -> None:
    memory = Memory(gradient_checkpointing=True)
    model = make(family, None, memory, guidance=guidance, finetune=finetune)
    train(model)
    dynamics = dynamics_of(model)
    condition, kept = rolled(model, dynamics)
    gradients = []
    for checkpointing in (True, False):
        if not checkpointing:
            model.network.disable_gradient_checkpointing()
        log_prob = replayed(model, dynamics, kept, condition)
        assert torch.equal(log_prob, kept.log_prob)
        log_prob.sum().backward()
        parameters = model.weights.parameters.values()
        gradients.append([require(p.grad, "a gradient").clone() for p in parameters])
        model.network.zero_grad()
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
    assert any(bool((g != 0).any()) for g in gradients[0])


@pytest.mark.parametrize("finetune", ["lora", "full"])
@pytest.mark.parametrize("family", FAMILIES)
def test_in_bfloat16_the_same_batch_is_replayed_as_it_was_drawn(
    make: Make, family: str, finetune: str, train: Callable[[ImageModel], None]
) -> None:
    half = Precision(weights="bfloat16", rollout="bfloat16", learning="bfloat16")
    model = make(family, half, finetune=finetune, guidance=4.5)
    train(model)
    seen, dynamics = calls(model), dynamics_of(model)
    condition, kept = rolled(model, dynamics)
    log_prob = replayed(model, dynamics, kept, condition)
    assert torch.equal(log_prob, kept.log_prob)
    assert {*seen} == {"bfloat16"}
    assert log_prob.dtype == kept.x.dtype == torch.float32
    log_prob.sum().backward()
    for parameter in model.weights.parameters.values():
        assert parameter.dtype == parameter.grad.dtype == torch.float32
        assert torch.isfinite(parameter.grad).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_half_precision_is_near_float32_and_not_it(make: Make, family: str) -> None:
    found = {}
    for name in ("float32", "bfloat16", "float16"):
        model = make(family, Precision(weights=name, rollout=name, learning=name))
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(2, *model.resolution.shape, generator=generator)
        with torch.no_grad():
            found[name] = model.predict(x, torch.tensor([0.75, 0.3]), model.encode(PROMPTS))
        assert found[name].dtype == torch.float32
    exact = found["float32"]
    for name, near in (("bfloat16", 0.1), ("float16", 0.02)):
        off = (found[name] - exact).norm() / exact.norm()
        assert 1e-5 < off < near, name


@pytest.mark.parametrize("family", FAMILIES)
def test_sampling_and_learning_each_have_their_own(make: Make, family: str) -> None:
    model = make(family, Precision(rollout="bfloat16"))
    seen, x = calls(model), torch.zeros(1, *model.resolution.shape)
    condition, t = model.encode(PROMPTS[:1]), torch.tensor([0.5])

    def computed() -> set[str]:
        seen.clear()
        with torch.no_grad():
            model.predict(x, t, condition)
        return {*seen}

    assert computed() == {"float32"}, "a comparison while learning has no gradient either"
    with model.precision.sampling():
        assert computed() == {"bfloat16"}
        with model.precision.sampling():
            pass
        assert computed() == {"bfloat16"}
    assert computed() == {"float32"}
    with pytest.raises(KeyError), model.precision.sampling():
        raise KeyError
    assert computed() == {"float32"}


@pytest.mark.parametrize("finetune", ["lora", "full"])
@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_frozen_is_half_and_what_is_trained_is_whole(
    make: Make, family: str, finetune: str
) -> None:
    half = Precision(weights="bfloat16", rollout="bfloat16", learning="bfloat16")
    model: Any = make(family, half, finetune=finetune)
    trained = {id(p) for p in model.weights.parameters.values()}
    kinds = {p.dtype for p in model.network.parameters() if id(p) in trained}
    assert kinds == {torch.float32}
    others = {p.dtype for p in model.network.parameters() if id(p) not in trained}
    assert others == ({torch.bfloat16} if finetune == "lora" else set())
    assert {p.dtype for p in model.pipe.text_encoder.parameters()} == {torch.bfloat16}
    assert {p.dtype for p in model.pipe.vae.parameters()} == {torch.float32}
    assert model.decode(torch.zeros(1, *model.resolution.shape)).dtype == torch.uint8


@pytest.mark.parametrize("finetune", ["lora", "full"])
@pytest.mark.parametrize("family", FAMILIES)
def test_what_leaves_is_in_float32(
    make: Make, family: str, finetune: str, tmp_path: Path, train: Callable[[ImageModel], None]
) -> None:
    half = Precision(weights="bfloat16", rollout="bfloat16", learning="bfloat16")
    model = make(family, half, Memory(gradient_checkpointing=True), finetune=finetune)
    train(model)
    model.export(tmp_path)
    (file,) = tmp_path.glob("adapter*.safetensors" if finetune == "lora" else "*/*.safetensors")
    saved = load_file(file)
    assert {tensor.dtype for tensor in saved.values()} == {torch.float32}
    # adapters have other names there, without the one that they have here
    for name, parameter in model.weights.parameters.items():
        key = name if finetune == "full" else "base_model.model." + name.replace(".default", "")
        assert torch.equal(saved[key], parameter.detach())


@pytest.fixture
def times_told() -> Iterator[Callable[[Any], list[Tensor]]]:
    """What a network's time embedding is told, from now on."""
    hooks = []

    def listen(model: Any) -> list[Tensor]:
        told: list[Tensor] = []
        network = model.network
        part = network.time_proj if isinstance(model, SD) else network.time_text_embed.time_proj
        hook = part.register_forward_pre_hook(lambda _, given: told.append(given[0].clone()))
        hooks.append(hook)
        return told

    yield listen
    for hook in hooks:
        hook.remove()


@pytest.mark.parametrize("weights", ["bfloat16", "float32"])
@pytest.mark.parametrize("family", FAMILIES)
def test_times_are_told_as_they_are_in_half_precision(
    make: Make, family: str, weights: Any, times_told: Callable[[Any], list[Tensor]]
) -> None:
    # of these, bfloat16 makes 752, 904 and 274
    times = torch.tensor([0.75, 0.9037, 0.2731])
    model = make(family, Precision(weights=weights, rollout="bfloat16", learning="bfloat16"))
    told = times_told(model)
    x, condition = torch.zeros(3, *model.resolution.shape), model.encode([*PROMPTS, "a"])
    with torch.no_grad(), model.precision.sampling():
        model.predict(x, times, condition)
    model.predict(x, times, condition)
    expected = {
        "sd": torch.tensor([750, 904, 273]),
        "sd3": 1000 * times,
        "flux": times * 1000 / 1000 * 1000,
    }[family]
    rollout, replay = (told[i] for i in ((0, 2) if family == "flux" else (0, 1)))
    assert torch.equal(rollout, replay)
    assert rollout.dtype == expected.dtype
    assert torch.equal(rollout, expected)
    if family == "flux":
        assert torch.equal(told[1], torch.full([3], 3500.0)), "guidance, which would be 3504"


WORDS = [
    *("model=sd35", "algo=grpo", "reward=compressibility", "hardware=cpu", "iterations=1"),
    *("prompts_per_iteration=1", "group_size=4", "updates_per_iteration=1", "schedule.steps=3"),
    *("window.steps=[0]", "sample_batch=4", "micro_batch=4", "model.size=64"),
    *("model.text_tokens=16", "model.guidance=1"),
]


def run(folder: Path, rollout: str, *words: str) -> dict[str, float]:
    """An iteration of four samples in bfloat16, drawn and replayed in one batch each."""
    composed = compose([*WORDS, f"model.path={folder}", *words])
    config: Any = copy.deepcopy(make_plan(composed.values, composed.choices).config)
    config["precision"]["rollout"] = rollout
    config["precision"]["weights"] = "float32"
    trainer = Trainer(build(config), training_budget(config), NoProgress())
    logged: list[dict[str, float]] = []
    trainer.run(lambda _iteration, metrics, _rollout: logged.append(metrics))
    return logged[0]


@pytest.mark.slow
def test_a_run_in_bfloat16_logs_how_far_its_first_ratio_is_off(sd3_folder: Path) -> None:
    assert run(sd3_folder, "bfloat16")["ratio/first_max_dev"] <= 1e-6


def test_a_run_stops_where_rollout_and_replay_compute_differently(sd3_folder: Path) -> None:
    with pytest.raises(TrainingError, match="sampling and training disagree"):
        run(sd3_folder, "float32", "algo.old_log_probs=sampled")


@pytest.mark.parametrize(
    ("rollout", "learning", "tf32", "expected"),
    [
        ("bfloat16", "bfloat16", "auto", "high"),
        ("bfloat16", "float32", "auto", "highest"),
        ("float32", "float32", "auto", "highest"),
        ("float32", "float32", True, "high"),
        ("float16", "float16", False, "highest"),
    ],
)
def test_float32_matrices_are_multiplied_exactly_where_replays_are(
    rollout: Any, learning: Any, tf32: Any, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[str] = []
    monkeypatch.setattr(torch, "set_float32_matmul_precision", chosen.append)
    monkeypatch.setattr(cudnn, "allow_tf32", True)
    precision = Precision(rollout=rollout, learning=learning, tf32=tf32)
    precision.set_matmul_precision(torch.device("cpu"))
    assert chosen == [], "a CPU has no TF32"
    precision.set_matmul_precision(torch.device("cuda"))
    assert chosen == [expected]
    assert cudnn.allow_tf32 is (expected == "high"), "of a UNet's convolutions too"


@pytest.mark.slow
def test_trained_weights_are_cast_once_in_all_passes_of_a_rollout(make: Make) -> None:
    model = make("sd3", Precision(weights="bfloat16", rollout="bfloat16", learning="bfloat16"))
    x, t, condition = torch.zeros(2, *model.resolution.shape), torch.ones(2), model.encode(PROMPTS)

    def casts(passes: int) -> int:
        with profile(activities=[ProfilerActivity.CPU]) as profiled, torch.no_grad():
            for _ in range(passes):
                model.predict(x, t, condition)
        return sum(
            event.count for event in profiled.key_averages() if event.key == "aten::_to_copy"
        )

    casts(1)
    each = casts(2) - casts(1)
    with model.precision.sampling():
        casts(1)
        later = casts(2) - casts(1)
    assert each - later == len(model.weights.parameters)
    # a step of the optimizer between two rollouts is seen, and learning has its gradients
    found = []
    for _ in range(2):
        with model.precision.sampling():
            found.append(model.predict(x, t, condition))
        with torch.no_grad():
            for parameter in model.weights.parameters.values():
                parameter.add_(0.1)
    assert not torch.equal(*found)
    assert model.predict(x, t, condition).requires_grad
