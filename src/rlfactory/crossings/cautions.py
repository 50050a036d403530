"""What is allowed and seldom meant."""

from collections.abc import Iterator

from rlfactory.crossings.base import Config, Traits, penalties


def cautions(config: Config, traits: Traits) -> Iterator[str]:
    """What is allowed and seldom meant."""
    node, dynamics = config["regularizer"], config["dynamics"]
    if node.get("placement") == "loss" and node.get("estimator") == "k3":
        yield "k3 in the loss follows the forward divergence; exact or k2 follow the one meant"
    truncated = dynamics.get("top_k", 0) > 0 or dynamics.get("top_p", 1) < 1
    if node.get("placement") == "reward" and truncated:
        yield "with top_k or top_p a sampled KL can turn negative and pay the policy for it"
    if traits["algo"].get("needs") == "forward_process" and traits["dynamics"].get("log_prob"):
        yield "these dynamics add noise that teaches this algorithm nothing: dynamics=ode has none"
    yield from _unheld(config, traits)
    yield from _unheeded(config, traits)
    stop, evaluation = config["stop"], config["evaluation"]
    names = [key.rpartition(".")[2] for key, *_ in penalties(config, traits)]
    if stop["kl"] is not None and not {"regularizer", "reference"} & {*names}:
        yield "stop.kl goes by kl/reference, and no term of this sum is named reference"
    if (stop["kl"], stop["reward"]) != (None, None) and not evaluation["every"]:
        yield "the best checkpoint is looked for at evaluations: evaluation.every=10 has some"


def _unheld(config: Config, traits: Traits) -> Iterator[str]:
    """Whether nothing keeps AWM near where it has just been."""
    algo = config.get("algo", {})
    unclipped = "clip_range" in algo and algo["clip_range"] is None
    if not (unclipped and str(algo.get("_target_")).endswith(".AWM")):
        return
    held = (
        (node.get("reference") == "old" or "compare" in node)
        and node["coefficient"].get("value") != 0
        for _, node, _ in penalties(config, traits)
    )
    if not any(held):
        yield (
            "AWM with neither a clip_range nor a penalty toward the old policy rose and then"
            " wandered in the prototype: algo.clip_range=1 or regularizer=kl_ema holds it"
        )


def _unheeded(config: Config, traits: Traits) -> Iterator[str]:
    """Whether a language model was told what only image models heed."""
    if traits["model"].get("process") != "tokens":
        return
    halves = [value for value in config["precision"].values() if value in ("bfloat16", "float16")]
    spared = [key for key, value in config["memory"].items() if key != "_target_" and value]
    if halves or spared:
        yield "precision and memory are for image models: this one computes in float32"
