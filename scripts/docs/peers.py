"""The tables of docs/reference/peers.md: the settings of all presets."""

import re
from collections.abc import Callable, Sequence

from rlfactory.config.overrides import plan_from_words
from rlfactory.config.plan import Plan
from rlfactory.utils.dotted_keys import value_at

NOTHING = "–"
FAMILIES = {
    "Steps of a flow: Flow-GRPO and what follows it": (
        *(
            "flow_grpo",
            "flow_grpo_fast",
            "flow_grpo_flux",
            "flow_grpo_qwen_image",
            "flow_grpo_wan",
            "cps",
            "tempflow",
            "guard",
        ),
        *("flow_dppo", "unirl_grpo_flux2_klein"),
    ),
    "Steps of a flow: DanceGRPO, BranchGRPO, MixGRPO, Flow-Factory": (
        *("dance", "branch", "mix", "mix_flash", "flow_factory_grpo", "flow_factory_guard"),
        "flow_factory_grpo_flux",
        *("flow_factory_grpo_flux2", "flow_factory_grpo_qwen_image"),
        *("flow_factory_grpo_z_image", "flow_factory_grpo_wan", "miles_grpo_qwen_image_21"),
        *("flow_factory_dppo_flux2_klein", "flow_factory_dppo_flux2_klein_multi"),
    ),
    "Steps of a model that predicts noise": ("ddpo", "trl_ddpo", "drlx", "dance_sd"),
    "Final samples": (
        *("nft", "flow_factory_nft", "flow_factory_nft_flux"),
        *("flow_factory_nft_qwen_image", "verl_omni_nft_qwen_image", "miles_nft_krea2"),
        *("awm", "flow_factory_awm"),
        *("flow_factory_awm_flux", "vgrpo_flux", "vgrpo_sd35", "dgpo"),
    ),
}
Cell = Callable[[Plan], str]


def shown(value: object) -> str:
    """A value in the syntax of the command line."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:g}".replace("e-0", "e-") if isinstance(value, float) else str(value)


def value(key: str) -> Cell:
    """A cell of one key, empty if the choice has no such key or does not use it."""

    def cell(plan: Plan) -> str:
        group = key.split(".")[0]
        unused = group in ("window", "times") and group not in plan.choices
        return NOTHING if unused else shown(value_at(plan.config, key, NOTHING))

    return cell


def stepwise(key: str) -> Cell:
    """A cell of a key that only algorithms with a window read."""
    return lambda plan: value(key)(plan) if "window" in plan.choices else NOTHING


def choice(group: str) -> Cell:
    """A cell of the option that a group has."""
    return lambda plan: plan.choices.get(group, NOTHING)


def options_of(group: str, plans: Sequence[Plan]) -> dict[str, Cell]:
    """A row of a group's choice, then one of each key that any of the plans gives it."""
    keys = dict.fromkeys(
        f"{group}.{key}" for plan in plans if group in plan.choices for key in plan.config[group]
    )
    read = [key for key in keys if key.rpartition(".")[2] not in ("_target_", "kind", "weights")]
    return {named(group): choice(group)} | {named(key): value(key) for key in read}


def named(key: str) -> str:
    """A row's label: the key, and the numbers of what it decides."""
    return f"`{key}`" + (f" ({DECIDES[key]})" if key in DECIDES else "")


def tuned(plan: Plan) -> str:
    """What of the model is trained."""
    model = plan.config["model"]
    if model["finetune"] == "full":
        return "all weights"
    return f"LoRA {model['lora_rank']}, alpha {shown(model['lora_alpha'])}"


def targets(plan: Plan) -> str:
    """The layers that have adapters."""
    model = plan.config["model"]
    if model["finetune"] == "full":
        return NOTHING
    return ", ".join(model["lora_targets"] or ["attention"])


def guidance(plan: Plan) -> str:
    """How strong, and whether by a second evaluation or as an input."""
    model = plan.config["model"]
    if "embedded_guidance" in model:
        return f"{shown(model['embedded_guidance'])}, an input"
    return shown(model["guidance"]) if model["guidance"] > 1 else "none"


def regularizer(plan: Plan) -> str:
    """The penalty and its coefficient, or each term's."""
    node, name = plan.config["regularizer"], plan.choices["regularizer"]
    if "terms" in node:
        each = {term: inner["coefficient"]["value"] for term, inner in node["terms"].items()}
        return f"{name}: " + ", ".join(f"{term} {shown(c)}" for term, c in each.items())
    return f"{name}: {shown(node['coefficient']['value'])}" if "coefficient" in node else name


SCHEDULES = {
    "constant": (),
    "power": ("warmup",),
    "linear": ("initial", "warmup"),
    "piecewise_linear": ("flat", "ramp"),
}
"""What these schedules read beside `decay`; the NFT types read nothing."""


def average(name: str) -> Cell:
    """How a weight set follows the policy, where something reads it."""

    def cell(plan: Plan) -> str:
        node = plan.config[name]
        if name == "ema" and plan.config["evaluation"]["weights"] == "policy":
            return NOTHING
        if name == "old" and plan.choices["algo"] != "nft" and "kl_awm" not in regularizer(plan):
            return NOTHING
        keys = ("decay", *SCHEDULES[node["schedule"]]) if node["schedule"] in SCHEDULES else ()
        read = ", ".join(f"{key} {shown(node[key])}" for key in keys)
        moves = f"each {node['update']}" if node["interval"] == 1 else ""
        moves = moves or f"each {node['interval']} {node['update']}s"
        return f"{node['schedule']} {read}; counts {node['clock']}s, {moves}".replace(" ;", ";")

    return cell


def passes(plan: Plan) -> str:
    """Forward passes for a sample: to draw it, to compare policies on it, to learn from it."""
    drawn, *more = re.findall(r"([\d.]+) (?:forward passes )?to", plan.derived["passes"])
    compared, learned = more if len(more) == 2 else ("0", *more)
    return f"{float(drawn):.3g} + {float(compared):g} + {learned}"


def samples(plan: Plan) -> str:
    """Prompts × samples per prompt."""
    return f"{plan.config['prompts_per_iteration']} × {plan.config['group_size']}"


DECIDES = {
    "schedule": 1,
    "advantage.std": 3,
    "advantage.unbiased": 2,
    "advantage.eps": 2,
    "advantage.eps_as": 2,
    "advantage.clip": "12, 18",
    "advantage.scale": 12,
    "advantage.zero_variance": 23,
    "dynamics.log_prob_of": 5,
    "dynamics.constants": 8,
    "dynamics.decode": 10,
    "dynamics.final_alpha": 11,
    "algo.bias": 6,
    "algo.per_time": 6,
    "algo.over_steps": 24,
    "algo.divergence": 25,
    "algo.reduction": 17,
    "times.space": 15,
}
"""The numbers on the page of differences between peers."""

ROWS: dict[str, Cell | None] = {
    "model": lambda plan: model_name(plan.config["model"]["path"]),
    "trained": tuned,
    "layers with adapters": targets,
    "`precision`": choice("precision"),
    "pixels": value("model.size"),
    "guidance": guidance,
    "`model.timesteps` (21)": value("model.timesteps"),
    "schedule": None,
    "dynamics": None,
    "window": None,
    "times": None,
    "`branches`": stepwise("branches"),
    "`branch_at`": stepwise("branch_at"),
    "`tail`": stepwise("tail"),
    "`latent_storage` (20)": stepwise("latent_storage"),
    "algo": None,
    "advantage": None,
    "`regularizer` (4, 13)": regularizer,
    "`old` (16)": average("old"),
    "`ema` (16)": average("ema"),
    "prompts × samples": samples,
    "updates per iteration": value("updates_per_iteration"),
    "iterations": value("iterations"),
    "learning rate": value("optimizer.lr"),
    "weight decay": value("optimizer.weight_decay"),
    "evaluation steps": value("evaluation.steps"),
    "evaluation pixels": lambda plan: shown(
        plan.config["evaluation"]["size"] or plan.config["model"]["size"]
    ),
    "forward passes per sample": passes,
}
"""The rows of a table; a group name stands for its choice and all of its keys."""


def model_name(path: str) -> str:
    """A model's name, short enough for a column."""
    return path.rpartition("/")[2].replace("stable-diffusion-", "SD ")


def plan_of(peer: str) -> Plan:
    """The plan of a preset."""
    return plan_from_words(f"experiment=peer/{peer}")


def line(cells: Sequence[str]) -> str:
    """A row of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def table(peers: Sequence[str]) -> str:
    """The table of a family, without empty rows."""
    plans = [plan_of(peer) for peer in peers]
    lines = [line(["", *(f"`{peer}`" for peer in peers)]), line(["---"] * (len(peers) + 1))]
    for label, cell in rows(plans).items():
        cells = [cell(plan) for plan in plans]
        if set(cells) - {NOTHING, "null"}:
            lines.append(line([label, *cells]))
    return "\n".join(lines)


def rows(plans: Sequence[Plan]) -> dict[str, Cell]:
    """All rows, with those of groups expanded."""
    spelled: dict[str, Cell] = {}
    for label, cell in ROWS.items():
        spelled |= options_of(label, plans) if cell is None else {label: cell}
    return spelled


def tables() -> str:
    """The tables of all families."""
    return "\n\n".join(f"### {title}\n\n{table(peers)}" for title, peers in FAMILIES.items())
