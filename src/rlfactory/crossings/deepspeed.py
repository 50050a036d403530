"""What DeepSpeed needs, what it can't divide, and a configuration of its own that is pasted."""

from collections.abc import Iterator
from importlib.util import find_spec

from rlfactory.crossings.base import Config, Traits
from rlfactory.hardware.pasted import Experiment, PastedError, clashes
from rlfactory.problems import Problem


def deepspeed_is_there(config: Config, traits: Traits) -> Iterator[Problem]:
    """What the hardware imports is installed."""
    package, extra = (traits.get("hardware", {}).get(name) for name in ("package", "extra"))
    if package is None or ((spec := find_spec(package)) is not None and spec.origin is not None):
        return
    message = f"needs the package {package}, which is not installed"
    yield Problem("hardware", f"{message}; type pip install 'rlfactory[{extra}]'", "hardware=fsdp2")


def zero_divides(config: Config, traits: Traits) -> Iterator[Problem]:
    """Losses can't be scaled part by part, nor moments be cut that are no numbers each; of a
    network that is divided itself, all is trained.
    """
    if "zero" not in config["hardware"]:
        return
    if config["hardware"]["zero"] == 3:
        if config["model"].get("finetune") == "lora":
            message = "is 3, which divides a network that is trained whole, and this is LoRA"
            yield Problem("hardware.zero", message, "hardware.zero=2")
        if config["model"].get("value_path") is not None:
            message = "is 3, and a critic of its own is not divided; allowed is a head"
            yield Problem("hardware.zero", message, "hardware.zero=2")
    if config["precision"].get("learning") == "float16":
        message = "is deepspeed, and float16 scales its losses; allowed are fp32 and bf16"
        yield Problem("hardware", message, "hardware=ddp")
    if not (kind := config["optimizer"]["_target_"]).startswith("torch.optim."):
        message = f"is {kind}, whose moments ZeRO can't cut; allowed is one of torch.optim"
        yield Problem("optimizer", message, "optimizer=adamw")


def pasted_agrees(config: Config, traits: Traits) -> Iterator[Problem]:
    """A pasted configuration says what the experiment says, and nothing that can't be done."""
    path = config["hardware"].get("config")
    if "zero" not in config["hardware"] or path is None:
        return
    try:
        for clash in clashes(path, _experiment(config, traits)):
            yield Problem(clash.key, clash.message)
    except PastedError as error:
        yield Problem("hardware.config", str(error), "hardware.config=null")


def _experiment(config: Config, traits: Traits) -> Experiment:
    from rlfactory.cost import update_items  # which asks rules' own questions

    node, size = config["hardware"], config["micro_batch"]
    items, whole = update_items(config, traits)
    return Experiment(
        zero=node["zero"],
        offload=node["offload"],
        processes=node["processes"],
        device=node["device"],
        learning=config["precision"]["learning"],
        max_grad_norm=config["max_grad_norm"],
        micro_batch=size,
        accumulated=-(-items // (whole * node["processes"])),
        batch=items,
    )
