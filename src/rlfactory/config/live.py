"""Live objects in a configuration: the options they stand in for, and their `object:NAME`."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any, TypeGuard

from rlfactory.config.composites import function_node, is_function, option_values
from rlfactory.config.composition import ComposedConfig
from rlfactory.config.options import options
from rlfactory.config.problems import PlanError, Problem, override_key, unknown_key
from rlfactory.config.schema.signature import live_signature
from rlfactory.config.words import typed_value
from rlfactory.model.lm.trainable import lora_options, model_fault, tokenizer_fault
from rlfactory.model.pipelines.families import BY_PIPELINE, family_of
from rlfactory.model.pipelines.local_models import LANGUAGE_OPTION, TEXT_TO_IMAGE
from rlfactory.utils.data_files import load_yaml
from rlfactory.utils.live_objects import PREFIX, unwrapped
from rlfactory.utils.text import plural

NAMES = ("model", "tokenizer", "reward", "prompts", "algo", "dynamics")
"""What can be handed over instead of an option."""
CLASSES = ("algo", "dynamics")
"""Groups of which a class may be handed over, whose options are typed as those of a shipped one."""
SMALL = 50_000_000
"""Parameters below which a network gets the settings of the shipped small model of its kind."""


RewardPart = tuple[Any, float | None]
"""One of several rewards (a function, a `Reward` or its class, or the name of an option) and its
weight in the sum; None: 1, or as it is typed."""


@dataclass(frozen=True)
class LiveArguments:
    """The live objects of a call.

    Attributes:
        objects: the objects by the name that a configuration gives them.
        rewards: the parts of the reward by name, where several were handed over; their objects are
            named `reward.NAME`.
    """

    objects: Mapping[str, Any]
    rewards: Mapping[str, RewardPart] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> tuple["LiveArguments", dict[str, Any]]:
        """The live objects among keyword arguments, and the other arguments.

        Raises:
            PlanError: an object can't be what it is handed over as.
        """
        given = {k: str(v) if k in NAMES and isinstance(v, Path) else v for k, v in given.items()}
        for key in NAMES:
            value = given.get(key, key)
            is_empty = isinstance(value, list | tuple | Mapping) and not value
            if is_empty or (value is None and key != "tokenizer"):
                raise PlanError([Problem(key, f"is {value}; leave it out for the default")])
        live = {k: v for k, v in given.items() if k in NAMES and _is_live(k, v)}
        settings = {k: v for k, v in given.items() if k not in live and v is not None}
        tokenizer = live.pop("tokenizer", None) or settings.pop("tokenizer", None)
        pair = live.get("model")
        if isinstance(pair, tuple) and len(pair) == 2 and tokenizer is None:
            live["model"], tokenizer = pair  # as `Run.pipeline` returns them
        if "model" in live and not hasattr(live["model"], "components"):
            network = unwrapped(live["model"])
            if (fault := model_fault(network)) is not None:
                raise PlanError([Problem("model", fault)])
            if tokenizer is None:
                message = "is a language model without its tokenizer; hand over tokenizer= too"
                raise PlanError([Problem("model", message)])
            if (fault := tokenizer_fault(tokenizer)) is not None:
                raise PlanError([Problem("tokenizer", fault)])
            live["model"] = (network, tokenizer)
        elif "model" in live and (fault := pipeline_fault(live["model"])) is not None:
            raise PlanError([Problem("model", fault)])
        elif tokenizer is not None:
            raise PlanError([Problem("tokenizer", "is for a language model, handed over as model")])
        if "dynamics" in live and not isinstance(live["dynamics"], type):
            message = f"is {live['dynamics']!r:.60}; hand over a class, of which the run makes one"
            raise PlanError([Problem("dynamics", message)])
        parts = reward_parts(live.pop("reward")) if are_several(live.get("reward")) else {}
        if "reward" in live and (fault := reward_fault(live["reward"])) is not None:
            raise PlanError([Problem("reward", fault)])
        live |= {f"reward.{n}": r for n, (r, _) in parts.items() if not isinstance(r, str)}
        return cls(live, parts), settings

    def words(self, typed: Sequence[str]) -> list[str]:
        """The options to begin with, for objects whose option was not typed."""
        keys = {override_key(word) for word in typed}
        words = []
        if self.rewards:  # named as far as their options can be typed, a function as a file's
            named = [n if n == r else f"{PREFIX}{n}" for n, (r, _) in self.rewards.items()]
            words = ["reward=combine", f"reward.of=[{','.join(named)}]"]
        if "reward" not in keys and _is_plain_function(self.objects.get("reward")):
            # it has the options of a function; where none is typed, the model's companion stays
            words += ["reward=function"] if any(k.startswith("reward.") for k in keys) else []
        for name, option_of in _OPTIONS.items():
            if name in self.objects and name not in keys and (o := option_of(self.objects[name])):
                words.append(f"{name}={o}")
        if isinstance(model := self.objects.get("model"), tuple):
            found = {} if "model.finetune" in keys else lora_options(model[0])
            words += [f"{key}={typed_value(v)}" for key, v in found.items() if key not in keys]
        return words


def apply_live(composed: ComposedConfig, arguments: LiveArguments) -> ComposedConfig:
    """The configuration in which live objects take the place of options."""
    values, choices = dict(composed.values), dict(composed.choices)
    typed = {override_key(word) for word in composed.overrides}
    appliers: Mapping[str, Callable[..., Mapping[str, Any]]] = {
        "model": _model_node,
        "reward": _reward_node,
        "prompts": lambda *_: {"_target_": f"{PREFIX}prompts"},
        **{group: partial(_class_node, group) for group in CLASSES},
    }
    for name, apply in appliers.items():
        if name in arguments.objects:
            values[name] = dict(apply(arguments.objects[name], values, typed))
            if name != "model":
                choices[name] = _name_of(arguments.objects[name])
    if arguments.rewards:
        values["reward"] = dict(_combined_node(arguments.rewards, values))
    return replace(composed, values=values, choices=choices)


def model_option(model: Any) -> str:
    """The option of the group `model` whose settings a live model takes; PlanError if none fits."""
    if isinstance(model, tuple):
        return "tiny_gpt2" if _size_of(model[0]) < SMALL else LANGUAGE_OPTION
    kind = TEXT_TO_IMAGE.sub("", type(model).__name__)
    if kind not in BY_PIPELINE:
        known = ", ".join([*BY_PIPELINE, "causal language models"])
        raise PlanError([Problem("model", f"is a {kind}; known are {known}")])
    family = family_of(kind, [n for n, part in model.components.items() if part is not None])
    is_small = _size_of(_network_of(model)) < SMALL
    return family.small if is_small and family.small else family.option


def pipeline_fault(pipe: Any) -> str | None:
    """Why a pipeline's networks can't be copied and exported; None if they can."""
    for name, part in pipe.components.items():
        if not hasattr(part, "named_modules"):
            continue
        if getattr(part, "peft_config", None):
            typed = "pipe.fuse_lora() and pipe.unload_lora_weights()"
            if hasattr(part, "merge_and_unload"):
                typed = f"pipe.{name} = pipe.{name}.merge_and_unload()"
            return f"has adapters in its {name}; merge them: {typed}"
        if any(parameter.is_meta for parameter in part.parameters()):
            return f"has a {name} without weights (on meta, or offloaded); hand it over as loaded"
        # of caches, group offloading and casts between layers
        if any(
            getattr(m, "_diffusers_hook", None) and m._diffusers_hook.hooks for m in part.modules()
        ):
            return f"has hooks of diffusers in its {name}; hand it over as loaded"
    return None


def algo_option(algo: Any) -> str:
    """The option of an algorithm's nearest shipped ancestor, or one that learns from the same;
    PlanError for what is no algorithm.
    """
    kind = algo if isinstance(algo, type) else type(algo)
    if (found := ancestor_option("algo", kind)) is not None:
        return found
    if (requires := getattr(kind, "requires", None)) in _BY_REQUIREMENT:
        return _BY_REQUIREMENT[requires]
    message = f"{kind.__name__} derives from no Algorithm; see docs/extend/algorithm.md"
    raise PlanError([Problem("algo", message, "rlfactory list algo")])


def ancestor_option(group: str, kind: type) -> str | None:
    """The option of the nearest shipped ancestor of a class; None if it has none."""
    files = {n: load_yaml(path.read_text("utf-8")) for n, path in options(group).items()}
    targets = {content[group]["_target_"]: name for name, content in files.items()}
    names = (f"{ancestor.__module__}.{ancestor.__qualname__}" for ancestor in kind.__mro__)
    return next((targets[name] for name in names if name in targets), None)


_OPTIONS: Mapping[str, Callable[[Any], str | None]] = {
    "model": model_option,
    "algo": algo_option,
    "dynamics": partial(ancestor_option, "dynamics"),
}
_BY_REQUIREMENT = {
    "transitions": "grpo",
    "forward_process": "awm",
    "states": "draft",
    "tokens": "ppo",
}
"""The option with whose companions an algorithm begins that derives from `Algorithm` itself."""


def _model_node(model: Any, values: Mapping[str, Any], typed: set[str]) -> Mapping[str, Any]:
    node = {**values["model"], "path": f"{PREFIX}model"}
    is_pipeline = hasattr(model, "components") and hasattr(model, "vae")
    if is_pipeline and "model.size" not in typed and (size := _native_size(model)):
        node["size"] = min(node["size"], size)
    return node


def _class_node(
    group: str, value: Any, values: Mapping[str, Any], typed: set[str]
) -> Mapping[str, Any]:
    """The options of the class that a class derives from, as far as it takes them."""
    known = live_signature(group, value).parameters
    kept = {k: v for k, v in values[group].items() if k in known or f"{group}.{k}" in typed}
    return {**kept, "_target_": f"{PREFIX}{group}"}


def _reward_node(reward: Any, values: Mapping[str, Any], _: set[str]) -> Mapping[str, Any]:
    """The node of a single reward; a function has its options as they were typed."""
    node = _live_reward_node(reward, "reward", values)
    own = values["reward"] if values["reward"].get("_target_") == node["_target_"] else {}
    return {**own, **node}


def _live_reward_node(reward: Any, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """A function becomes the shipped reward of functions of texts or images."""
    if _is_plain_function(reward):
        return function_node(f"{PREFIX}{name}", values["model"])
    return {"_target_": f"{PREFIX}{name}"}


def _is_plain_function(reward: object) -> bool:
    """Whether a live reward is a function rather than a `Reward` or its class."""
    is_reward = isinstance(reward, type) or hasattr(type(reward), "score")
    return callable(reward) and not is_reward


def _combined_node(rewards: Mapping[str, RewardPart], values: Mapping[str, Any]) -> dict[str, Any]:
    """`reward=combine` of several rewards; weights that were typed win."""
    node, parts = values["reward"], dict[str, Any]()
    for name, (reward, _) in rewards.items():
        if not isinstance(reward, str):
            own = _live_reward_node(reward, f"reward.{name}", values)
        elif is_function(reward):
            own = function_node(reward, values["model"])
        else:
            own = dict(option_values("reward", reward))
        typed = node["parts"].get(name, {})
        if typed.get("_target_") == own["_target_"]:
            own |= {key: value for key, value in typed.items() if key != "function"}
        parts[name] = own
    weights = {name: weight for name, (_, weight) in rewards.items() if weight is not None}
    return {**node, "of": [*parts], "parts": parts, "weights": {**weights, **node["weights"]}}


def _is_live(name: str, value: object) -> bool:
    """Whether a keyword's value is an object, and neither an option nor settings."""
    are_rewards = name == "reward" and are_several(value)
    return are_rewards or not isinstance(value, str | Mapping | None)


def _network_of(pipe: Any) -> Any:
    network = getattr(pipe, "transformer", None)  # a compiled one has no truth value
    return unwrapped(pipe.unet if network is None else network)


def _size_of(network: Any) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def _native_size(pipe: Any) -> int | None:
    """The image edge in pixels that a pipeline's network was made for, if its config says so."""
    sample = getattr(_network_of(pipe).config, "sample_size", None)
    factor = getattr(pipe, "vae_scale_factor", None)
    return int(sample * factor) if isinstance(sample, int) and factor else None


def _name_of(value: Any) -> str:
    """A short name for the run folder and the plan; of prompts, how many there are."""
    if hasattr(value, "eval_prompts") and isinstance(value, Sized):
        return plural(len(value), "prompt")
    named = value if hasattr(value, "__name__") else type(value)
    return str(named.__name__).strip("<>")


def live_options(arguments: LiveArguments, typed: Sequence[str]) -> tuple[list[str], list[Problem]]:
    """The words of a call, and the problems of those that set what its classes do not take.

    An option that a class has and the option it derives from has not is added: `algo.NAME=VALUE`
    becomes `++algo.NAME=VALUE`.
    """
    words, problems = [], []
    for word in typed:
        key = override_key(word)
        group, _, option = key.partition(".")
        live = arguments.objects.get(group) if group in CLASSES and option else None
        if live is None or word.startswith(("+", "~")):
            words.append(word)
        elif not isinstance(live, type):
            message = "can't be set: the algorithm is an instance; hand over its class"
            problems.append(Problem(key, message))
        elif option.partition(".")[0] not in (known := live_signature(group, live).parameters):
            problems.append(unknown_key(key, known))
        else:
            words.append(word if "." in option else f"++{word}")
    return words, problems


def are_several(value: object) -> TypeGuard[Mapping[str, Any] | list[Any] | tuple[Any, ...]]:
    """Whether a value is a list of rewards, or a mapping with one in it rather than settings."""
    if isinstance(value, Mapping):
        parts = [_part(inner)[0] for inner in value.values()]
        return any(callable(part) or hasattr(type(part), "score") for part in parts)
    return isinstance(value, list | tuple)


def reward_parts(value: Mapping[str, Any] | Iterable[Any]) -> dict[str, RewardPart]:
    """The parts by name: the keys of a mapping; of a list the names of functions and options.

    Args:
        value: rewards, each alone or in a pair with its weight.

    Raises:
        PlanError: one is no reward, or two have the same name.
    """
    given = [*value.items()] if isinstance(value, Mapping) else [(_name(v), v) for v in value]
    parts: dict[str, RewardPart] = {}
    for name, inner in given:
        reward, _ = part = _part(inner)
        if not isinstance(reward, str) and (fault := reward_fault(reward)) is not None:
            raise PlanError([Problem(f"reward.{name}", fault)])
        if name in parts or not name.isidentifier():
            message = "can't be its name; name each reward: reward={'correct': f, 'short': g}"
            raise PlanError([Problem(f"reward.{name}", message)])
        parts[name] = part
    return parts


def reward_fault(value: Any) -> str | None:
    """Why an object is no reward; None if it is one."""
    kind = value if isinstance(value, type) else type(value)
    if hasattr(value, "parameters") and hasattr(value, "config"):
        return f"is a {kind.__name__}, a network; reward=reward_model has its folder as its path"
    if hasattr(kind, "score"):
        wanted = [n for n in ("media", "main") if not hasattr(value, n)]
        if isinstance(value, type):
            wanted = [n for n in wanted if n != "main"]  # its constructor may set it
        lacks = f"{kind.__name__} lacks {', '.join(wanted)}"
        return f"{lacks}; derive it from rlfactory.reward.base.Reward" if wanted else None
    if isinstance(value, type):
        return f"{kind.__name__} is a class and no Reward; hand over an instance of it"
    if callable(value):
        return None
    return f"{value!r:.60} is no reward; allowed is a function, a Reward or an option"


def _part(value: Any) -> RewardPart:
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], Real):
        return value[0], float(value[1])
    return value, None


def _name(value: Any) -> str:
    reward, _ = _part(value)
    if isinstance(reward, str):
        return reward.rpartition(":")[2]
    return _name_of(reward)
