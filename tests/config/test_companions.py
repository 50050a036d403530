"""Recipes: found without being named, complete, beneath all that is typed."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rlfactory.cli.multirun import planned_jobs
from rlfactory.config.composition import Composition
from rlfactory.config.options import options
from rlfactory.config.overrides import (
    compose,
    override_frozen,
    plan_composed,
    plan_from_words,
)
from rlfactory.config.problems import PlanError, Problem, fix_command
from rlfactory.utils.dotted_keys import merged

FULL = ("sd14", "sd35", "flux")
ALGORITHMS = ("grpo", "branch_grpo", "grpo_guard", "flow_dppo", "ddpo", "ddpo_sf")
ALGORITHMS += ("nft", "awm", "vgrpo")
FILES = options("recipe")


@pytest.mark.parametrize(
    ("words", "recipe"),
    [
        (["model=sd35", "algo=grpo"], "sd35_grpo"),
        (["model=sd35", "algo=grpo", "reward=ocr"], "sd35_grpo_ocr"),
        (["model=sd35", "algo=grpo_guard", "reward=hps"], "sd35_grpo_guard"),
        (["model=sd15", "algo=ddpo", "reward=aesthetic"], "sd14_ddpo_aesthetic"),
        (["model=flux_schnell", "algo=ddpo"], "flux_schnell_ddpo"),
        (["model=sd35", "model.path=/data/mine", "algo=nft"], "sd35_nft"),
        (["model=sd35", "algo=ppo"], "sd35"),
        (["model=sd35", "recipe=none"], "none"),
        (["model=sd35", "recipe=sd35_awm"], "sd35_awm"),
        (["experiment=peer/nft", "reward=hps"], "sd35_nft"),
        (["model=tiny_sd3", "algo=grpo"], "none"),
        (["model=gpt2"], "none"),
    ],
    ids=str,
)
def test_the_nearest_is_chosen(words: list[str], recipe: str) -> None:
    assert compose(words).choices["recipe"] == recipe


FULL_AND_KIN = (*FULL, "sd15", "flux_schnell")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "algo"),
    [  # every model and algorithm is met; all pairs are golden plans, and run with --whole
        pytest.param(model, algo, marks=() if (i + j) % 3 == 0 else pytest.mark.whole)
        for i, model in enumerate(FULL_AND_KIN)
        for j, algo in enumerate(ALGORITHMS)
    ],
)
def test_every_pair_has_one_and_plans_without_further_words(model: str, algo: str) -> None:
    words = [f"model={model}", f"algo={algo}", "hardware.memory_gb=80", "hardware.device=cuda"]
    if algo == "grpo_guard" and model.startswith("sd1"):
        with pytest.raises(PlanError, match="flow_sde alone"):
            plan_from_words(*words)
        return
    if algo in ("nft", "awm", "vgrpo") and model == "flux_schnell":
        with pytest.raises(PlanError, match="distilled to 4 steps"):
            plan_from_words(*words)
        return
    made = plan_from_words(*words)
    assert algo in made.choices["recipe"]
    assert made.choices["prompts"] != "shapes"
    assert made.choices["reward"] in ("aesthetic", "pickscore")
    assert made.config["iterations"] >= 100
    assert made.config["evaluation"]["every"] > 0
    if made.choices["algo"] in ("nft", "awm"):
        assert made.config["regularizer"]["_target_"] != "rlfactory.regularizer.none.NoRegularizer"
    notes = [text for key, text in made.derived.items() if key.startswith("note")]
    known = (
        "nearest published",
        "no published run",
        "the model was distilled",
        "few steps of this",
    )
    assert all(text.startswith(known) for text in notes)


def test_nothing_is_criticised_by_its_own_plan() -> None:
    for model in (*FULL, "tiny_sd", "tiny_sd3"):
        for algo in ("nft", "awm", "vgrpo"):
            shown = plan_from_words(f"model={model}", f"algo={algo}").derived.values()
            assert not any("adds noise" in text or "add noise" in text for text in shown)
    assert compose(["model=sd14", "algo=nft"]).choices["dynamics"] == "ode"


TEXTS = (
    *("ppo", "rloo", "grpo_token", "dapo", "dr_grpo", "gspo", "cispo", "reinforce_pp"),
    *("dppo", "cppo", "drpo", "vespo", "gmpo", "maxrl"),
)
SMALL = ("tiny_sd", "tiny_sd3", "tiny_flux", "tiny_gpt2", "gpt2", "qwen3")


@pytest.mark.parametrize("model", SMALL)
def test_no_default_of_a_small_model_is_criticised_by_its_own_plan(model: str) -> None:
    writes = model in ("tiny_gpt2", "gpt2", "qwen3")
    for algo in TEXTS if writes else ALGORITHMS:
        if algo == "grpo_guard" and model == "tiny_sd":
            continue  # its ratio is derived for flow models
        made = plan_from_words(f"model={model}", f"algo={algo}", "hardware.memory_gb=80")
        notes = [text for key, text in made.derived.items() if key.startswith("note")]
        assert not [text for text in notes if not text.startswith(("nearest", "no published run"))]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("model.guidance", {"sd35 grpo": 4.5, "sd35 nft": 1.0, "sd14 ddpo": 5.0}),
        ("dynamics.noise_level", {"sd35 grpo": 0.7, "flux grpo": 0.9}),
        ("schedule.steps", {"sd35 awm": 14, "sd35 vgrpo": 40, "flux nft": 8, "flux vgrpo": 25}),
        ("algo.clip_range", {"sd35 grpo": 1e-4, "sd35 grpo_guard": 4e-6, "flux grpo_guard": 2e-6}),
        ("optimizer.lr", {"sd35 grpo": 3e-4, "sd35 grpo_guard": 1e-4}),
        ("regularizer.coefficient.value", {"sd35 nft": 1e-4, "flux nft": 1e-4, "sd35 grpo": 0.01}),
        ("regularizer.terms.reference.coefficient.value", {"sd35 awm": 1e-4, "flux awm": 1e-4}),
        ("group_size", {"sd35 grpo": 24, "flux nft": 16, "flux vgrpo": 12, "sd14 ddpo": 1}),
        ("evaluation.size", {"flux awm": 1024, "flux grpo": None}),
        ("model.lora_rank", {"flux nft": 64, "sd35 nft": 32}),
        ("window.skip_last", {"sd35 grpo": 1, "sd14 ddpo": 0}),
        ("learning_rate.final_scale", {"sd35 grpo": 1.0, "flux grpo": 1.0}),
    ],
    ids=str,
)
def test_published_values(key: str, expected: dict[str, float | None]) -> None:
    for pair, value in expected.items():
        model, algo = pair.split()
        node = compose([f"model={model}", f"algo={algo}"]).values
        for part in key.split("."):
            node = node[part]
        assert node == value, pair


@pytest.mark.parametrize(
    ("word", "key", "value"),
    [
        ("schedule.steps=7", "schedule.steps", 7),
        ("optimizer.lr=1e-6", "optimizer.lr", 1e-6),
        ("experiment=smoke", "iterations", 1),
        ("dynamics=cps", "dynamics.noise_level", 0.8),
        ("advantage=group", "advantage.zero_variance", "keep"),
    ],
)
def test_what_is_typed_wins(word: str, key: str, value: object) -> None:
    node = compose(["model=sd35", "algo=grpo", word]).values
    for part in key.split("."):
        node = node[part]
    assert node == value


@pytest.mark.parametrize(
    ("words", "prompts"),
    [
        (["model=sd35", "reward=ocr"], "signs"),
        (["model=flux", "reward=geneval"], "geneval"),
        (["model=flux", "algo=awm", "reward=hps"], "preferences"),
        (["model=sd14", "algo=ddpo", "reward=compressibility"], "imagenet_animals"),
        (["model=sd14", "reward=aesthetic"], "animals"),
        (["model=sd14", "algo=ddpo", "reward=hps"], "preferences"),
        (["model=sd35", "reward=shapes"], "shapes"),
        (["model=sd35", "reward=hps", "prompts=hpdv2"], "hpdv2"),
        (["model=tiny_sd3", "reward=hps"], "shapes"),
        (["model=gpt2"], "movies"),
    ],
    ids=str,
)
def test_a_reward_brings_its_prompts(words: list[str], prompts: str) -> None:
    assert compose(words).choices["prompts"] == prompts


@pytest.mark.parametrize(
    ("model", "reward"), [("tiny_gpt2", "remote_text"), ("tiny_sd", "remote"), ("wan", "remote")]
)
def test_a_server_is_asked_for_what_the_model_makes(model: str, reward: str) -> None:
    for typed in ("remote", "remote_text"):
        words = [f"model={model}", f"reward={typed}", "reward.url=http://127.0.0.1:8000"]
        assert compose(words).choices["reward"] == reward


@pytest.mark.slow
def test_small_models_keep_their_own_defaults() -> None:
    for name in (m for m in options("model") if m.startswith("tiny_")):
        for algo in ALGORITHMS:
            words = [f"model={name}", f"algo={algo}"]
            assert compose(words).values == compose([*words, "recipe=none"]).values


@pytest.mark.slow
def test_a_recipe_leaves_presets_their_values() -> None:
    """What a preset does not say about when to evaluate, save and batch is all that is added."""
    free = (
        "evaluation.every",
        "checkpoint.minutes",
        "micro_batch",
        "sample_batch",
        "memory",
        "ema",
    )
    for name in (n for n in options("experiment") if n.startswith("peer/")):
        with_recipe = compose([f"experiment={name}"]).values
        without = compose([f"experiment={name}", "recipe=none"]).values
        changed = [key for key in _leaves(with_recipe) if key not in _leaves(without)]
        unread = ("model.lora_",) if without["model"]["finetune"] == "full" else ()
        kept = [key for key in changed if not key[0].startswith((*free, *unread))]
        assert not kept, name


def _leaves(values: object, prefix: str = "") -> set[tuple[str, str]]:
    if not isinstance(values, dict):
        return {(prefix, repr(values))}
    below = [_leaves(v, f"{prefix}.{k}" if prefix else str(k)) for k, v in values.items()]
    return set().union(*below)


OF_DATA = [
    n for n in FILES if n.endswith(("_sft", "_dpo", "_raft"))
]  # the rates of examples, not of a run
OF_A_MACHINE = ["smollm2_grpo_token"]  # as many samples as two cores draw


@pytest.mark.parametrize(
    "name", [n for n in FILES if n not in ("none", *OF_DATA, *OF_A_MACHINE, *options("model"))]
)
def test_a_recipe_names_what_it_follows(name: str) -> None:
    found = re.search(r"^# (?:published|nearest): (\S+)", FILES[name].read_text(), flags=re.M)
    assert found is not None
    assert found[1] in options("experiment")


@pytest.mark.parametrize(
    "path", [p for n, p in FILES.items() if "_" in n], ids=lambda p: Path(p).stem
)
def test_a_recipe_chooses_the_options_whose_keys_it_sets(path: Path) -> None:
    """Else its keys would meet an option that has none of the name."""
    text = path.read_text()
    base = re.findall(r"^  - (\w+)$", text, flags=re.M)
    chosen = {*re.findall(r"override /(\w+):", text)}
    for name in (b for b in base if b in FILES):
        chosen |= {*re.findall(r"override /(\w+):", FILES[name].read_text())}
    set_here = {
        g
        for g in ("window", "times", "dynamics", "advantage", "regularizer")
        if re.search(rf"^{g}:", text, flags=re.M)
    }
    assert set_here <= chosen


def test_departures_are_told() -> None:
    said = [
        t
        for t in plan_from_words("model=sd35", "algo=grpo", "optimizer.lr=1e-5").derived.values()
        if t.startswith("nearest published: experiment=peer/flow_grpo")
    ]
    assert len(said) == 1
    assert "optimizer.lr=1e-05 (0.0003)" in said[0]
    preset = plan_composed(compose(["experiment=peer/flow_grpo"])).derived.values()
    assert not any(t.startswith("nearest published") for t in preset)
    unpublished = plan_from_words("model=sd14", "algo=nft").derived.values()
    assert any(t.startswith("no published run of this algorithm") for t in unpublished)
    small = plan_from_words("algo=grpo", "optimizer.lr=1e-5").derived.values()
    assert not any("published" in t for t in small)


def test_each_job_of_a_multirun_has_its_recipe() -> None:
    words = ["model=sd35,tiny_sd3", "algo=grpo,awm", "hardware.memory_gb=80"]
    jobs = planned_jobs([*words, "hardware.device=cuda"]).values()
    found = [(job.choices["recipe"], job.config["schedule"]["steps"]) for job in jobs]
    assert found == [("sd35_grpo", 10), ("sd35_awm", 14), ("none", 10), ("none", 10)]


def rates(*words: str) -> tuple[Any, Any]:
    values = compose(words).values
    return values["optimizer"]["lr"], values["model"].get("value_lr")


@pytest.mark.parametrize(
    ("words", "rate"),
    [
        ("", 1e-4),
        ("model=sd35", 3e-4),
        ("model=sd35 model.finetune=full", 1e-5),
        ("model=sd35 model.finetune=full optimizer=muon", 1e-5),
        ("model=sd35 model.finetune=full optimizer.lr=7e-6", 7e-6),
        ("model=sd35 learning_rate.full=2e-6 model.finetune=full", 2e-6),
        ("model=sd35 algo=grpo_guard", 1e-4),
        ("model=sd35 algo=grpo_guard model.finetune=full", 1e-5),
        ("experiment=peer/dance", 1e-5),
        ("experiment=peer/dance model.finetune=lora", 3e-4),
        ("experiment=peer/dance model.finetune=lora optimizer=muon", 3e-4),
        ("experiment=arithmetic", 3e-4),
        ("experiment=gpt2_negative", 8e-6),
        ("experiment=gpt2_negative optimizer.lr=auto", 1e-5),
        ("model=gpt2", 1e-5),
        ("model=gpt2 model.finetune=lora", 1e-4),
        ("model=gpt2 algo=sft", 2e-5),
        ("model=gpt2 algo=sft model.finetune=lora", 2e-4),
        ("model=gpt2 algo=dpo model.finetune=lora", 5e-6),
        ("model=qwen3", 3e-5),
        ("model=qwen3 model.finetune=full", 1e-6),
        ("model=tiny_gpt2", 1e-3),
        ("model=tiny_sd3 optimizer._target_=torch.optim.SGD", 1e-4),
    ],
)
def test_the_rate_is_of_what_is_trained(words: str, rate: float) -> None:
    assert rates(*words.split())[0] == rate


@pytest.mark.parametrize(
    ("words", "rate"),
    [
        ("model=gpt2", 1e-4),
        ("model=gpt2 model.value_path=folder", 1e-5),
        ("model=gpt2 model.value_lr=3e-5", 3e-5),
        ("model=gpt2 model.value_lr=null", None),
        ("experiment=gpt2_negative", 8e-5),
    ],
)
def test_a_value_head_and_a_critic_have_their_own(words: str, rate: float | None) -> None:
    assert rates(*words.split())[1] == rate


def test_a_replaced_rate_is_noted() -> None:
    (note,) = compose(["experiment=peer/dance", "model.finetune=lora"]).notes
    assert note == "optimizer.lr=0.0003, of model.finetune=lora: 1e-05 is stated for full"


def test_a_tile_is_the_size_of_every_batch_and_no_step_is_fused() -> None:
    composed = compose(["model=tiny_gpt2", "hardware.tile=8", "micro_batch=3"])
    assert composed.values["optimizer"]["fused"] is False
    assert [composed.values[name] for name in ("micro_batch", "sample_batch")] == [8, 8]
    assert composed.notes == ["micro_batch=3 is not read: with hardware.tile every pass has 8 rows"]


def test_a_frozen_rate_stays() -> None:
    frozen = {**compose(["model=sd35", "model.finetune=full"]).values, "choices": {}}
    assert override_frozen(frozen, ["iterations=3"]).values["optimizer"]["lr"] == 1e-5
    assert override_frozen(frozen, ["optimizer.lr=auto"]).values["optimizer"]["lr"] == 1e-5


@pytest.mark.parametrize(
    ("words", "is_noted"),
    [
        ("model.finetune=lora optimizer.lr=1e-5 iterations=10", True),
        ("model.finetune=lora optimizer.lr=1e-5 iterations=1000", False),
        ("model.finetune=lora iterations=1", False),
        ("optimizer.lr=1e-8 iterations=10", True),
        ("optimizer.lr=1e-8 optimizer._target_=torch.optim.SGD iterations=10", False),
    ],
)
def test_a_rate_at_which_nothing_is_learned_is_noted(words: str, is_noted: bool) -> None:
    rows = plan_from_words("model=gpt2", "algo=grpo_token", *words.split()).derived.values()
    assert any("too little to learn" in row for row in rows) == is_noted


@pytest.mark.parametrize(
    ("words", "group", "keys"),
    [
        (["model=tiny_sd", "window=all"], "window", {"_target_", "skip_last"}),
        (
            ["model=tiny_sd", "window=random_contiguous"],
            "window",
            {"_target_", "size", "low", "high"},
        ),
        (["model=sd14", "algo=grpo", "window=fixed"], "window", {"_target_", "steps"}),
        (["experiment=peer/flow_grpo", "window=fixed"], "window", {"_target_", "steps"}),
        (["model=sd35", "algo=grpo", "regularizer=none"], "regularizer", {"_target_"}),
    ],
    ids=lambda value: ",".join(sorted(value)) if isinstance(value, set | list) else value,
)
def test_keys_of_an_option_that_is_not_chosen_are_left_out(
    words: list[str], group: str, keys: set[str]
) -> None:
    assert plan_from_words(*words).config[group].keys() == keys


def test_values_of_the_chosen_option_are_its_own() -> None:
    """`random_contiguous` and tiny_sd's `random_subset` have the same keys."""
    assert compose(["model=tiny_sd"]).values["window"]["size"] == 3
    assert compose(["model=tiny_sd", "window=random_contiguous"]).values["window"]["size"] == 2
    typed = compose(["model=tiny_sd", "window=random_contiguous", "window.size=1"])
    assert typed.values["window"]["size"] == 1


def test_keys_that_are_gone_may_be_deleted_all_the_same() -> None:
    words = ["experiment=peer/cps", "window=all", "~window.size", "~window.low", "~window.high"]
    assert compose(words).problems == []
    assert compose(words).values["window"].keys() == {"_target_", "skip_last"}
    (problem,) = compose([*words, "~schedule.nothing"]).problems
    assert problem.key == "schedule.nothing"


def test_a_configuration_without_a_conflict_has_all_that_its_files_set() -> None:
    for words in ([], ["algo=grpo"], ["model=sd35"], ["model=sd15", "algo=awm"]):
        found = Composition.of(words)
        assert all(found.has_effect(layer, key) for layer in found.layers for key in layer.values)


BESIDE = ("window", "times", "dynamics", "advantage", "regularizer")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pair", "group"),
    [
        # each group beside one of the recipes, in turn
        pytest.param(pair, group, marks=() if j % 3 == i else pytest.mark.whole)
        for i, pair in enumerate([("sd35", "grpo"), ("sd35", "awm"), ("flux", "vgrpo")])
        for j, group in enumerate(BESIDE)
    ],
    ids=str,
)
def test_every_option_has_its_own_keys_beside_a_recipe(pair: tuple[str, str], group: str) -> None:
    """No recipe sets a key that another option does not have."""
    model, algo = pair
    for option in options(group):
        words = [f"model={model}", f"algo={algo}", f"{group}={option}"]
        faults: list[Problem] = []
        try:
            plan_composed(compose(words))
        except PlanError as error:
            faults = [p for p in error.problems if "no such key" in p.message]
        assert not faults, option


def test_an_experiment_of_ones_own_file_is_read_too(tmp_path: Path) -> None:
    folder = tmp_path / "experiment"
    folder.mkdir()
    head = "# @package _global_\n# Mine\n"
    (folder / "base.yaml").write_text(
        f"{head}defaults:\n  - override /algo: grpo\n  - override /window: all\n"
        "window: {skip_last: 3}\n"
    )
    (folder / "mine.yaml").write_text(f"{head}defaults:\n  - base\n  - _self_\nseed: 4\n")
    place = f"hydra.searchpath=['file://{tmp_path}']"
    assert compose([place, "experiment=mine"]).values["window"]["skip_last"] == 3
    fixed = compose([place, "experiment=mine", "window=fixed"]).values
    assert (fixed["seed"], fixed["window"].keys()) == (4, {"_target_", "steps"})


def test_a_model_of_the_same_class_takes_an_experiments_place() -> None:
    words = ["experiment=peer/flow_grpo", "model=tiny_sd3", "reward=shapes", "prompts=shapes"]
    made = plan_from_words(*words)
    model: Mapping[str, object] = made.config["model"]
    assert (model["path"], model["size"], model["finetune"]) == ("zoo:tiny_sd3", 64, "full")
    assert (made.config["group_size"], made.config["dynamics"]["noise_level"]) == (24, 0.7)
    assert any("takes the place of peer/flow_grpo's sd35" in text for text in made.derived.values())


def test_sizes_of_the_other_model_are_not_kept() -> None:
    words = ["experiment=peer/vgrpo_flux", "model=tiny_flux"]
    assert compose(words).values["evaluation"]["size"] is None
    assert compose([*words, "evaluation.size=32"]).values["evaluation"]["size"] == 32


@pytest.mark.slow
@pytest.mark.parametrize(
    "typed",
    [
        ["experiment=peer/flow_grpo", "model=flux"],
        ["experiment=peer/nft", "model=sd14", "iterations=3"],
        ["model=sd35", "experiment=peer/ddpo"],
        ["experiment=peer/dance", "model=sd35", "reward=pickscore"],
    ],
    ids=str,
)
def test_an_experiment_for_another_network_is_refused(typed: list[str]) -> None:
    composed = compose(typed)
    (problem,) = [p for p in composed.problems if p.key == "experiment"]
    assert "is written for model=" in problem.message
    command = fix_command(problem, typed).split()
    assert "experiment" not in " ".join(command)
    assert {w for w in typed if not w.startswith("experiment")} <= {*command}
    assert plan_from_words(*command[1:]).choices["recipe"] != "none"


@pytest.mark.slow
def test_the_experiments_own_model_is_no_contradiction() -> None:
    assert not compose(["experiment=peer/flow_grpo", "model=sd35"]).problems
    assert not compose(["experiment=smoke", "model=sd35"]).problems


CONFIG = {"seed": None, "algo": {"_target_": "a.B", "beta": 0.1, "terms": {}}}


def test_mappings_are_merged_at_all_depths_and_other_values_replaced() -> None:
    above = {"algo": {"beta": [1], "terms": None}, "seed": {"a": 1}}
    assert merged(CONFIG, above) == {
        "seed": {"a": 1},
        "algo": {"_target_": "a.B", "beta": [1], "terms": None},
    }
    assert CONFIG["seed"] is None
