"""Values that are computed of several options of a library: sizes, windows, times, losses, rewards.

Functions take the value of a row's key and the translation that is being made.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlfactory.config.composites import is_function
from rlfactory.config.named_models import kind_of_id
from rlfactory.config.options import options
from rlfactory.config.peers.importer import Translation
from rlfactory.config.peers.names import our_option
from rlfactory.config.peers.values import is_place
from rlfactory.config.problems import PlanError, Problem

PROMPTS = {"pickscore": "pick_a_pic", "ocr": "signs", "geneval": "geneval", "geneval2": "geneval2"}
"""Flow-Factory's and UniRL's folders of prompts, and our options."""
_SPLITS = {"path": "train", "eval_path": "test"}
PAIR_LOSSES = ("sigmoid", "ipo", "hinge", "robust")


def model_of_name(path: Any, made: Translation) -> None:
    """The option of an image model by a part of its id."""
    if (option := kind_of_id(str(path))) is None:
        message = f"{path} is of a kind that is not trained here"
        raise PlanError([Problem("pretrained.model", message)])
    made.type(f"model={option}", f"model.path={path}")


def data_sets(sources: Any, made: Translation) -> None:
    """The first of several data sets."""
    first, *others = [source.get("dataset_dir") for source in sources]
    made.left["data.dataset_dir"] = first
    if others:
        made.drop("data.datasets", others, "one data set")


def prompts_of_folder(place: Any, made: Translation, folder: Path = Path()) -> None:
    """A folder of prompts `train.txt` or `train.jsonl`, by its name or its files."""
    if option := PROMPTS.get(Path(place).name.lower()):
        made.type(f"prompts={option}")
        return
    kind = "txt" if (folder / place / "train.txt").is_file() else "jsonl"
    made.type("prompts=file", f"prompts.path={place}/train.{kind}")
    if (folder / place / f"test.{kind}").is_file():
        made.type(f"prompts.eval_path={place}/test.{kind}")


def prompts_by_name(place: Any, made: Translation) -> None:
    """flow_grpo's folder of `train.txt` or `train_metadata.jsonl`, or a set of prompts by name."""
    folder, _, name = str(place or "").rstrip("/").rpartition("/")
    if not name:
        made.notes.append("no dataset is named: choose prompts")
        return
    if (option := our_option("prompts", name)) in options("prompts") or not folder:
        made.type(f"prompts={option}")
        return
    is_text = made.value("prompt_fn") == "general_ocr" and made.value("model") != "flux_kontext"
    end = ".txt" if is_text else "_metadata.jsonl"
    paths = (f"prompts.{key}={folder}/{name}/{split}{end}" for key, split in _SPLITS.items())
    made.type("prompts=file", *paths)


def prompts_of_file(file: Any, made: Translation) -> None:
    """A file of prompts, by the name of its folder or by itself, and one to evaluate on."""
    evaluated = made.take("data_source.args.run.eval_data_path")
    if option := PROMPTS.get(Path(file).parent.name):
        made.type(f"prompts={option}")
        return
    if not Path(file).suffix:
        made.notes.append(f"{file} is a variable that is not set: prompts.path is its file")
        file = evaluated = f"{file}.jsonl"
    made.type("prompts=file", f"prompts.path={file}")
    if evaluated not in (None, file):
        made.type(f"prompts.eval_path={evaluated}")


def combined(weights: Mapping[str, Any], made: Translation) -> list[str]:
    """The rewards that are here, which are typed with their weights; the others are listed."""
    here: dict[str, float] = {}
    for name, weight in weights.items():
        if (ours := our_option("reward", name)) in options("reward"):
            here[ours] = float(weight)
        else:
            made.drop(f"rewards.{name}", weight, "none here; reward=FILE.py:NAME")
    if len(here) < 2:
        made.type(f"reward={next(iter(here), 'FILE.py:NAME')}")
    else:
        made.type("reward=combine", f"reward.of=[{','.join(here)}]")
        made.type(*(f"reward.weights.{n}={w:g}" for n, w in here.items() if w != 1))
    return [*here]


def _entries(given: Any) -> list[Mapping[str, Any]]:
    return [given] if isinstance(given, Mapping) and given else list(given or [])


def rewards(given: Any, made: Translation) -> None:
    """Flow-Factory's rewards: names with weights, and options that are left out."""
    if entries := _entries(given):
        combined({str(e.get("reward_model")): e.get("weight", 1.0) for e in entries}, made)
    for option, value in (pair for entry in entries for pair in entry.items()):
        if option not in ("name", "reward_model", "weight"):
            made.drop(f"rewards.{option}", value, "scoring.*, or options of the reward")


def eval_rewards(given: Any, made: Translation) -> None:
    """The names of Flow-Factory's rewards of evaluations."""
    named = [our_option("reward", str(entry.get("reward_model"))) for entry in _entries(given)]
    if names := [name for name in named if name in options("reward")]:
        made.type(f"eval_rewards.of=[{','.join(names)}]")


def reward_function(given: Any, made: Translation) -> None:
    """The reward of flow_grpo and ddpo-pytorch: a name, or names with weights."""
    weights = {given: 1.0} if isinstance(given, str) else dict(given or {})
    if weights:
        theirs = {"geneval": "geneval_flow_grpo", "video_ocr": "ocr"}
        if "video_ocr" in weights:
            made.notes.append("video_ocr leaves out frames that score 0; reward=ocr is their mean")
        combined({theirs.get(name, name): weight for name, weight in weights.items()}, made)


def rewards_of_service(weights: Any, made: Translation) -> None:
    """The rewards of UniRL's service, which are scored here."""
    here, url = combined(weights, made), made.left.get("reward.backend.config.base_url")
    if url and "unifiedreward" in here:
        made.type(f"reward.{'parts.unifiedreward.' if len(here) > 1 else ''}url={url}")
        made.notes.append("reward=unifiedreward asks a server with OpenAI's interface, not UniRL's")


def rewards_of_texts(given: Any, made: Translation) -> None:
    """TRL's rewards by name or import path, with weights in their order, or one reward model."""
    names = [str(name) for name in (given if isinstance(given, list) else [given])]
    weights, found = made.take("reward_weights"), [_text_reward(name) for name in names]
    if found == [""] and is_place(names[0]):
        made.type("reward=reward_model", f"reward.path={names[0]}")
        return
    left = [name for name, ours in zip(names, found, strict=True) if not ours]
    typed = [ours for ours in found if ours]
    is_weighted = weights and typed and not left
    if typed:
        is_list = len(typed) > 1 or is_weighted
        made.type(f"reward=[{','.join(typed)}]" if is_list else f"reward={typed[0]}")
    if len(typed) > 1:
        made.type("reward.missing=skip")
    if is_weighted:
        made.type(f"reward.weights=[{','.join(f'{weight:g}' for weight in weights)}]")
    elif weights:
        made.drop("reward_weights", weights, "reward.weights=[...], in the order of reward=[...]")
    if left:
        reason = "of your own: reward=FILE.py:NAME; several: reward=[FILE.py:NAME,length]"
        made.drop("reward_funcs", left, reason)


def _text_reward(name: str) -> str:
    """The word for a reward: an option, or a function by its import path; empty for others."""
    if (option := our_option("reward", name)) in options("reward"):
        return option
    if is_function(name):
        return name
    return ":".join(name.rsplit(".", 1)) if "." in name and "/" not in name else ""


def decays(_: Any, made: Translation) -> None:
    """The decays of Flow-Factory's CRD: of DiffusionNFT by number, or START-VALUE-SLOPE-END."""
    for theirs, ours in {"old_model_decay": "old", "sampling_model_decay": "ema"}.items():
        given = str(made.take(f"train.{theirs}", ""))
        if given in ("0", "1", "2"):
            made.type(f"{ours}.schedule=nft_{given}")
        elif given.count("-") == 3:
            start, first, slope, last = (float(part) for part in given.split("-"))
            made.type(f"{ours}.decay={last:g}")
            if first and not start:  # as good as theirs: a whole number of steps
                steps = round((last - first) / slope)
                made.type(f"{ours}.schedule=linear", f"{ours}.initial={first:g}")
                made.type(f"{ours}.warmup={steps}")
            else:
                made.type(f"{ours}.schedule=piecewise_linear", f"{ours}.ramp={slope:g}")
                made.type(f"{ours}.flat={start:g}")
        elif given:
            made.drop(f"train.{theirs}", given, f"{ours}.schedule")


def first_optimizer(groups: Any, made: Translation) -> None:
    """The options of the first group of parameters."""
    made.left |= {f"optimizers.{key}": value for key, value in groups[0].items()}


def loss_of_pairs(given: Any, made: Translation) -> None:
    """TRL's losses of DPO: one of pairs, and a supervised one beside it."""
    losses = [given] if isinstance(given, str) else list(given)
    given_weights = made.take("loss_weights") or [1.0] * len(losses)
    weights = dict(zip(losses, given_weights, strict=True))
    main = [name for name in losses if name in PAIR_LOSSES]
    if len(main) != 1 or weights[main[0]] != 1 or {*losses} - {*main, "sft"}:
        made.drop("loss_type", given, f"algo.loss_type is one of {', '.join(PAIR_LOSSES)}")
    else:
        made.type(f"algo.loss_type={main[0]}")
    if "sft" in weights:
        made.type(f"algo.sft_weight={weights['sft']}")
