"""How many numbers are trained: all of a network's, or those of adapters on it."""

from collections.abc import Sequence

from rlfactory.estimate.activations import Config, family_of, unet_blocks
from rlfactory.estimate.folder import Part

USUAL = {"flux": 8, "sd3": 8, "unet": 4}
"""How many kinds of projections have adapters where no targets are named."""


def trained(network: Part, finetune: str, rank: int, targets: Sequence[str] | None) -> float:
    """Of named targets only the share is known: as many as the usual ones, each alike."""
    if finetune == "full":
        return network.parameters
    family = family_of(network.config)
    share = len(targets) / USUAL[family] if targets else 1.0
    of = {"flux": _flux, "sd3": _sd3, "unet": _unet}
    return share * rank * of[family](network.config)


def _flux(network: Config) -> int:
    """The eight attention projections of a double block, three of a single one; all square."""
    width = network["num_attention_heads"] * network["attention_head_dim"]
    return int(2 * width * (8 * network["num_layers"] + 3 * network["num_single_layers"]))


def _sd3(network: Config) -> int:
    """The eight attention projections of a joint block; the last has nothing to put its text in."""
    width = network["num_attention_heads"] * network["attention_head_dim"]
    return int(2 * width * (8 * network["num_layers"] - 1))


def _unet(network: Config) -> int:
    """The four of self- and of cross-attention, whose keys and values come from the text."""
    text = network["cross_attention_dim"]
    blocks = [width for kind, _, width, _ in unet_blocks(network, 64) if kind == "transformer"]
    return int(sum(14 * width + 2 * text for width in blocks))
