"""What a reward made of rewards is made of, and whether that adds up."""

from collections.abc import Iterator, Mapping

from rlfactory.crossings.base import Config, Traits, judges
from rlfactory.problems import Problem, closest


def _combined(config: Config, traits: Traits) -> Config | None:
    """The node of a combined reward, where the reward is one."""
    return config["reward"] if traits["reward"].get("made_of") == "parts" else None


def parts_are_rewards(config: Config, traits: Traits) -> Iterator[Problem]:
    """There is a part, none is a sum itself, none is listed twice or named as the sum is."""
    for key in ("reward", "eval_rewards"):
        names = config[key].get("of", []) if key != "reward" or _combined(config, traits) else []
        for name in {n for n in names if names.count(n) > 1}:
            message = f"names {name} twice; to have it twice, name a part of your own"
            yield Problem(f"{key}.of", message, f"{key}.of=[{','.join(dict.fromkeys(names))}]")
        if "combined" in names:
            yield Problem(f"{key}.of", "a part can't be named combined, as their sum is")
    for key, _, ours in judges(config, traits):
        if ours.get("made_of") == "parts":
            yield Problem(key, "is made of parts itself; a part is a single reward")
    node = _combined(config, traits)
    if node is not None and not node["of"]:
        remedy = "reward.of=[compressibility]"
        yield Problem("reward.of", "is empty; name the rewards that it is made of", remedy)


def parts_are_named(config: Config, traits: Traits) -> Iterator[Problem]:
    """What is said of parts by name is said of parts that there are."""
    node = _combined(config, traits)
    for option in ("weights", "gates", "clips", "normalise") if node else ():
        given = node[option] if node else None
        if not isinstance(given, Mapping):
            continue
        for name in given:
            if name not in config["reward"]["of"]:
                yield _stranger(config, f"reward.{option}.{name}", name)
        for name, asked in given.items():
            for other in asked if isinstance(asked, Mapping) else ():
                if other not in config["reward"]["of"]:
                    yield _stranger(config, f"reward.{option}.{name}.{other}", other)


def _stranger(config: Config, key: str, name: str) -> Problem:
    of = config["reward"]["of"]
    guess = closest(name, of)
    meant = f". Did you mean {guess}?" if guess else ""
    remedy = f"{key.rpartition('.')[0]}.{guess}" if guess else ""
    return Problem(key, f"reward.of names no {name}; it names {', '.join(of)}{meant}", remedy)


def parts_count(config: Config, traits: Traits) -> Iterator[Problem]:
    """At least one part has a weight other than 0."""
    node = _combined(config, traits)
    if node is None or not node["of"]:
        return
    weights = node["weights"] or {}
    if all(weights.get(name, 1) == 0 for name in node["of"]):
        message = "gives no part a weight other than 0, so nothing would be trained"
        yield Problem("reward.weights", message)


def clips_have_order(config: Config, traits: Traits) -> Iterator[Problem]:
    """A clip is two bounds, the lower one first, and one of them is a number."""
    node = _combined(config, traits)
    for name, bounds in ((node or {}).get("clips") or {}).items():
        numbers = [bound for bound in bounds if bound is not None]
        if len(bounds) != 2 or not numbers or numbers != sorted(numbers):
            message = f"is {bounds}; allowed is [lower, upper], null for one of them"
            yield Problem(f"reward.clips.{name}", message, f"reward.clips.{name}=[0,1]")


def advantage_sums_parts(config: Config, traits: Traits) -> Iterator[Problem]:
    """With GDPO it is the advantage that makes one of the parts' scores."""
    node = _combined(config, traits)
    if node is None or node["aggregate"] != "gdpo":
        return
    if traits["algo"].get("needs") == "tokens":
        message = "is gdpo, and this algorithm has an advantage of its own; allowed is sum"
        yield Problem("reward.aggregate", message, "reward.aggregate=sum")
    elif config["advantage"].get("aggregate") != "gdpo":
        message = "is of one score; reward.aggregate=gdpo hands it one of each part"
        yield Problem("advantage", message, "advantage=gdpo")
    elif config["advantage"].get("weights") is not None:
        message = "are those of reward.weights with reward.aggregate=gdpo"
        yield Problem("advantage.weights", message, "advantage.weights=null")
    if isinstance(node["normalise"], Mapping) or node["normalise"] != "none":
        message = f"is {node['normalise']}, and gdpo normalises by group itself; allowed is none"
        yield Problem("reward.normalise", message, "reward.normalise=none")
