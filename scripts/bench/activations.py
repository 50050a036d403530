"""Bytes of activations of each published network, counted on fake tensors, for the plan's memory.

    python scripts/bench/activations.py                 # all rows anew, about an hour on one core
    python scripts/bench/activations.py sd14 Qwen/Qwen3-8B

Writes them into the tables of rlfactory/config/memory. A row of a network has, for each way to
train it, the bytes of an item that grow with its latents and with its tokens of text: what a
forward and backward pass hold at most beside weights and gradients (`learning`), and what a forward
pass without a gradient holds (`sampling`); and the adapters' parameters for each unit of rank.
That of an autoencoder has the bytes for each pixel that decoding holds.
"""

import argparse
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from full_size import a_prompt, adapter
from peft import LoraConfig, inject_adapter_in_model
from published import part
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM

from rlfactory.config.memory.model_parts import (
    TABLES,
    Part,
    architecture,
    language_models,
    published,
    published_rows,
)
from rlfactory.model.pipelines.embedding_cache import LENGTHS
from rlfactory.model.pipelines.local_models import latent_group, latent_pixels
from rlfactory.rollout import Condition
from rlfactory.tools.fake_tensors import Counting, fake_tensors, with_fake_tensors

WAYS = [
    (finetune, dtype, again)
    for finetune in ("lora", "full")
    for dtype in ("float32", "bfloat16")
    for again in (False, True)
]
SIZES, TOKENS = (1024, 1536), (256, 512)
"""Pixels and tokens of text of the two counts whose difference is a rate."""
VIDEOS: Mapping[str, Mapping[str, Any]] = {
    **dict.fromkeys(("wan", "wan22", "wan_i2v"), {"size": [240, 416], "frames": 9}),
    "ltx": {"size": [480, 704], "frames": 17},
}
"""Options of models of videos, whose two counts are of so many latents in time:"""
LATENTS = (3, 5)


def word(finetune: str, dtype: str, again: bool) -> str:
    return " ".join(
        [finetune, "half" if dtype == "bfloat16" else "float", *["checkpointed"] * again]
    )


def counted(network: nn.Module, predict: Callable[[], Tensor]) -> tuple[int, int]:
    """The most bytes of a prediction, and of one with its backward pass but for gradients."""
    for parameter in network.parameters():
        if parameter.requires_grad and not parameter._post_accumulate_grad_hooks:
            parameter.register_post_accumulate_grad_hook(drop_gradient)
    with Counting() as live:
        with torch.no_grad():
            predict()
        sampling, before, live.peak = live.peak, live.now, live.now
        predict().float().pow(2).mean().backward()
    return sampling, live.peak - before


def drop_gradient(parameter: Tensor) -> None:
    parameter.grad = None


ONE = {"wan22": {"trained": "high"}}
"""Options by which one network of two is trained, whose row it is."""


def image_rates(name: str, way: tuple[str, str, bool]) -> list[list[int]]:
    """Bytes for each latent and for each token of text, of sampling and of learning."""
    finetune, dtype, again = way
    weights = torch.bfloat16 if (finetune, dtype) == ("lora", "bfloat16") else torch.float32
    options: dict[str, Any] = {"finetune": finetune, "guidance": 1.0}
    reads_tokens = name not in ("sd14", "sdxl")
    if reads_tokens:
        options["text_tokens"] = TOKENS[0]
    options |= {**VIDEOS.get(name, {}), **ONE.get(name, {})}
    model = adapter(name, {}, weights, **options)
    network, text = model.network, model.encode([a_prompt(model)]).tensors
    if again:
        network.enable_gradient_checkpointing()
    network.train(again)
    if name in VIDEOS:
        shape = model.resolution.shape
        shapes = [(shape[0], latents, *shape[2:]) for latents in LATENTS]
    else:
        shapes = [model.resolution_of(size).shape for size in SIZES]

    def longer(tensor: Tensor, tokens: int) -> Tensor:
        more = tokens - TOKENS[0]
        grows = tensor.ndim > 1 and tensor.shape[1] in (TOKENS[0], TOKENS[0] + 77)
        shape = (
            [tensor.shape[0], tensor.shape[1] + more, *tensor.shape[2:]] if grows else tensor.shape
        )
        return torch.ones(shape, dtype=tensor.dtype)

    lengths = {tokens: torch.full((1,), tokens) for tokens in TOKENS}  # real: they are read
    with fake_tensors() as mode:
        with_fake_tensors(network, mode)

        def count(shape: Sequence[int], tokens: int) -> tuple[int, int]:
            tensors = {
                k: lengths[tokens] if k == LENGTHS else longer(v, tokens) for k, v in text.items()
            }
            x, t = torch.empty(1, *shape), torch.empty(1)

            def predict() -> Tensor:
                with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
                    return model.predict(x, t, Condition(tensors))

            return counted(network, predict)

        small, large = (count(shape, TOKENS[0]) for shape in shapes)
        more = count(shapes[0], TOKENS[1]) if reads_tokens else small
    area = [torch.Size(shape[1:]).numel() for shape in shapes]
    if name not in VIDEOS:  # the autoencoder's latents, of which a network may get patches
        edge = latent_pixels(published()[name]["parts"]["vae"]["config"]) or 1
        area = [(size // edge) ** 2 for size in SIZES]
    return [
        [round((b - a) / (area[1] - area[0])), round((c - a) / (TOKENS[1] - TOKENS[0]))]
        for a, b, c in zip(small, large, more, strict=True)
    ]


def image_row(name: str, described: Mapping[str, Any]) -> dict[str, Any]:
    kind = "unet" if "unet" in described["parts"] else "transformer"
    config = described["parts"][kind]["config"]
    lora = adapter(name, {}, torch.float32, **ONE.get(name, {})).lora
    rank = next(iter(lora.layers[0].r.values()))
    rates = {word(*way): image_rates(name, way) for way in WAYS}
    part = Part(described["parts"][kind]["parameters"], config)
    return {
        "size": round(part.size, 4),
        "lora": sum(p.numel() for p in lora.parameters().values()) // rank,
        **rates,
    }


OF_IMAGES = ("diffusers.AutoencoderKLQwenImage21",)
"""Autoencoders made as those of videos that decode single frames."""


def decoding_row(described: Mapping[str, Any]) -> dict[str, Any]:
    """Bytes for each pixel of an image; of a video at its beginning, and for each of its frames."""
    vae = part(described).requires_grad_(False).eval()
    channels = vae.config.get("z_dim") or vae.config["latent_channels"]
    group = latent_group(vae.config)
    is_video = "z_dim" in vae.config or group > 1
    with fake_tensors() as mode:
        with_fake_tensors(vae, mode)

        def peak(latents: int) -> float:
            x = torch.empty(1, channels, *([latents] if is_video else []), 16, 16)
            with torch.no_grad(), Counting() as live:
                pixels = vae.decode(x, return_dict=False)[0]
            return live.peak / float(pixels.shape[-1] * pixels.shape[-2])

        found = [peak(1)]
        if is_video and described["class"] not in OF_IMAGES:
            # each latent after the first is a group of frames
            second, third = peak(2), peak(3)
            found += [second - (group + 1) * (third - second) / group, (third - second) / group]
    size = Part(described["parameters"], vae.config).size
    return {"size": round(size, 4), "decoding": [round(rate) for rate in found]}


def language_model(config: Mapping[str, Any]) -> nn.Module:
    values = {key: value for key, value in config.items() if key != "model_type"}
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(
            AutoConfig.for_model(config["model_type"], **values, **ends)
        ).eval()


def language_rates(config: Mapping[str, Any], way: tuple[str, str, bool]) -> list[list[int]]:
    """Bytes for each token, up to the hidden states."""
    finetune, dtype, again = way
    network = language_model(config)
    if finetune == "lora":
        weights = torch.bfloat16 if dtype == "bfloat16" else torch.float32
        network.requires_grad_(False).to(weights)
        inject_adapter_in_model(LoraConfig(r=16, target_modules=targets_of(config)), network)
        for parameter in network.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.float()
    if again:
        network.gradient_checkpointing_enable({"use_reentrant": False})
        network.train()
        for module in network.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
    with fake_tensors() as mode:
        with_fake_tensors(network, mode)

        def count(tokens: int) -> tuple[int, int]:
            ids = torch.zeros(1, tokens, dtype=torch.long)
            mask = torch.ones(1, tokens, dtype=torch.bool)

            def predict() -> Tensor:
                with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
                    return network.base_model(
                        input_ids=ids, attention_mask=mask, use_cache=False
                    ).last_hidden_state

            return counted(network, predict)

        small, large = count(1024), count(2048)
    return [[0, round((b - a) / 1024)] for a, b in zip(small, large, strict=True)]


def targets_of(config: Mapping[str, Any]) -> list[str]:
    return ["c_attn"] if config["model_type"] == "gpt2" else ["q_proj", "v_proj"]


def language_row(config: Mapping[str, Any]) -> dict[str, Any]:
    network = language_model(config)
    inject_adapter_in_model(LoraConfig(r=16, target_modules=targets_of(config)), network)
    lora = sum(p.numel() for n, p in network.named_parameters() if "lora_" in n) // 16
    rates = {word(*way): language_rates(config, way) for way in WAYS}
    part = Part(0, config)
    return {
        "size": round(part.size, 4),
        "lora": lora,
        **rates,
    }


def rows(names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The rows of published networks and autoencoders: of the names, or all."""
    seen = set[str]()
    for name, described in json.loads((TABLES / "published.json").read_text()).items():
        parts = described["parts"]
        network = parts.get("unet") or parts["transformer"]
        head = {"name": name, "class": network["class"].rpartition(".")[2]}
        # others have the network of the first one
        if not names and (head["class"], network["parameters"]) in seen:
            continue
        seen.add((head["class"], network["parameters"]))
        if not names or name in names:
            yield (
                head | {"targets": TARGETS.get(head["class"], [8, 16])} | image_row(name, described)
            )
        kind = parts["vae"]["class"].rpartition(".")[2]
        if kind not in seen and (not names or kind in names):
            seen.add(kind)
            yield {"name": kind, "class": kind} | decoding_row(parts["vae"])
    for row in language_models():
        config, name = row["config"], row["hub"][0]
        if not names or name in names:
            kind = architecture(config)
            targets = [1, 4] if kind == "gpt2" else [2, 7]
            yield {"name": name, "class": kind, "targets": targets} | language_row(config)


TARGETS = {
    **{"UNet2DConditionModel": [4, 8], "ZImageTransformer2DModel": [4, 8]},
    "Flux2Transformer2DModel": [9, 18],
    "QwenImage21Transformer2DModel": [4, 7],
    "Krea2Transformer2DModel": [4, 8],
    "ErnieImageTransformer2DModel": [4, 7],
    "Lumina2Transformer2DModel": [4, 8],
    "LTXVideoTransformer3DModel": [8, 10],
}
"""Kinds of layers of a block that have adapters by default, and that there are."""


def stored() -> list[dict[str, Any]]:
    """The rows of both tables."""
    return [*language_models(), *published_rows()]


def store(row: Mapping[str, Any]) -> None:
    """Write a row beside the configuration of its network."""
    rates = {key: value for key, value in row.items() if key not in ("name", "class")}
    if found := [known for known in language_models() if known["name"] == row["name"]]:
        found[0].update(row)
        lines = ",\n".join(f"  {json.dumps(known)}" for known in language_models())
        (TABLES / "language_models.json").write_text(f"[\n{lines}\n]\n")
        return
    table = TABLES / "published.json"
    text = table.read_text()
    place = rf'("class": "\w+\.{re.escape(row["class"])}",\n( +)"parameters": .+\n)'
    line = rf'\1\2"activations": {json.dumps(rates)},\n'
    entry = text.find(f'  "{row["name"]}": {{') if "targets" in row else 0
    pattern = re.compile(place + r'( +"activations": .+\n)?')
    table.write_text(text[:entry] + pattern.sub(line, text[entry:], count=1))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="rows to count anew, all without any")
    for row in rows(parser.parse_args().names):
        store(row)
        print(row["name"], flush=True)


if __name__ == "__main__":
    main()
