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
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from full_size import Changes, a_prompt, adapter
from ghost import Live, fake_tensors, with_fake_tensors
from peft import LoraConfig, inject_adapter_in_model
from published import part
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM

from rlfactory.config.memory.model_parts import TABLES
from rlfactory.model.pipelines.embedding_cache import LENGTHS
from rlfactory.rollout import Condition

PUBLISHED_FILE, LANGUAGE_FILE = TABLES / "published.json", TABLES / "language_models.json"
WAYS = [
    (finetune, dtype, again)
    for finetune in ("lora", "full")
    for dtype in ("float32", "bfloat16")
    for again in (False, True)
]
SIZES, TOKENS = (384, 512), (128, 256)
"""Pixels and tokens of text of the two counts whose difference is a rate."""
FRAMES = (9, 17)


def word(finetune: str, dtype: str, again: bool) -> str:
    return " ".join([finetune, "half" if dtype == "bfloat16" else "float", *["checkpointed"] * again])


def counted(predict: Callable[[], Tensor]) -> tuple[int, int]:
    """The most bytes of a prediction, and of the second of two gradients: the first one stays."""
    with Live() as live:
        with torch.no_grad():
            predict()
        sampling = live.peak
        predict().float().pow(2).mean().backward()
        before, live.peak = live.now, live.now
        predict().float().pow(2).mean().backward()
    return sampling, live.peak - before


def image_rates(name: str, way: tuple[str, str, bool], changes: Changes) -> list[list[float]]:
    """Bytes for each latent and for each token of text, of sampling and of learning."""
    finetune, dtype, again = way
    weights = torch.bfloat16 if (finetune, dtype) == ("lora", "bfloat16") else torch.float32
    options: dict[str, Any] = {"finetune": finetune, "guidance": 1.0}
    reads_tokens = name not in ("sd14", "sdxl")
    if reads_tokens:
        options["text_tokens"] = TOKENS[0]
    if name == "wan":
        options |= {"size": [240, 416], "frames": FRAMES[0]}
    model = adapter(name, changes, weights, **options)
    network, text = model.network, model.encode([a_prompt(model)]).tensors
    if again:
        network.enable_gradient_checkpointing()
    network.train(again)
    if name == "wan":
        shape = model.resolution.shape
        shapes = [(shape[0], latents, *shape[2:]) for latents in (3, 5)]
    else:
        shapes = [model.resolution_of(size).shape for size in SIZES]

    def longer(tensor: Tensor, tokens: int) -> Tensor:
        more = tokens - TOKENS[0]
        grows = tensor.ndim > 1 and tensor.shape[1] in (TOKENS[0], TOKENS[0] + 77)
        shape = [tensor.shape[0], tensor.shape[1] + more, *tensor.shape[2:]] if grows else tensor.shape
        return torch.ones(shape, dtype=tensor.dtype)

    with fake_tensors():
        with_fake_tensors(network)

        def count(shape: Sequence[int], tokens: int) -> tuple[int, int]:
            tensors = {
                k: torch.full_like(v, tokens) if k == LENGTHS else longer(v, tokens)
                for k, v in text.items()
            }
            x, t = torch.empty(1, *shape), torch.empty(1)

            def predict() -> Tensor:
                with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
                    return model.predict(x, t, Condition(tensors))

            return counted(predict)

        small, large = (count(shape, TOKENS[0]) for shape in shapes)
        more = count(shapes[0], TOKENS[1]) if reads_tokens else small
    area = [torch.Size(shape[1:]).numel() for shape in shapes]
    return [
        [(b - a) / (area[1] - area[0]), (c - a) / (TOKENS[1] - TOKENS[0])]
        for a, b, c in zip(small, large, more, strict=True)
    ]


def at_full_depth(count: Callable[[Mapping[str, Any]], Any], depth: Mapping[str, Any]) -> Any:
    """What a network of all its blocks has, by what each further one of a kind adds to two."""
    depth = {k: v for k, v in depth.items() if v}
    if not depth:
        return torch.tensor(count({}))
    few = {k: [] if isinstance(v, list) else 2 for k, v in depth.items()}
    base = total = torch.tensor(count(few), dtype=torch.float64)
    for key, blocks in depth.items():
        is_list = isinstance(blocks, list)
        further = (len(blocks) if is_list else blocks - 2) / 2
        total = total + further * (torch.tensor(count(few | {key: [0, 1] if is_list else 4})) - base)
    return total


DEPTH = ("num_layers", "num_single_layers", "n_layers", "n_refiner_layers", "dual_attention_layers")
LANGUAGE_DEPTH = ("num_hidden_layers", "n_layer")


def image_row(name: str, described: Mapping[str, Any]) -> dict[str, Any]:
    kind = "unet" if "unet" in described["parts"] else "transformer"
    config = described["parts"][kind]["config"]
    depth = {} if kind == "unet" else {k: config[k] for k in DEPTH if config.get(k)}

    def lora(changes: Mapping[str, Any]) -> list[float]:
        model = adapter(name, {kind: changes}, torch.float32)
        rank = next(iter(model.lora.layers[0].r.values()))
        return [sum(p.numel() for p in model.lora.parameters().values()) // rank]

    row: dict[str, Any] = {"lora": int(at_full_depth(lora, depth)[0])}
    for way in WAYS:
        rates = at_full_depth(lambda c, way=way: image_rates(name, way, {kind: c}), depth)
        row[word(*way)] = [[round(float(x)) for x in r] for r in rates]
        print(name, way, row[word(*way)], flush=True)
    return row


def decoding_row(described: Mapping[str, Any]) -> dict[str, Any]:
    """Bytes for each pixel of an image, and of a further frame of a video."""
    vae = part(described).requires_grad_(False).eval()
    config = vae.config
    channels = config.get("z_dim") or config["latent_channels"]
    is_video = "z_dim" in config
    with fake_tensors():
        with_fake_tensors(vae)

        def peak(frames: int, edge: int = 16) -> tuple[float, int]:
            x = torch.empty(1, channels, *([frames] if is_video else []), edge, edge)
            with torch.no_grad(), Live() as live:
                pixels = vae.decode(x, return_dict=False)[0]
            return float(live.peak), pixels.shape[-1] * pixels.shape[-2]

        first, pixels = peak(1)
        found = [round(first / pixels, 1)]
        if is_video:
            second, third = peak(2)[0], peak(3)[0]
            found += [round(second / pixels, 1), round((third - second) / pixels, 1)]
        return {"decoding": found}


def language_model(config: Mapping[str, Any]) -> nn.Module:
    values = {key: value for key, value in config.items() if key != "model_type"}
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(
            AutoConfig.for_model(config["model_type"], **values, **ends)
        ).eval()


def language_rates(config: Mapping[str, Any], way: tuple[str, str, bool]) -> list[float]:
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
    with fake_tensors():
        with_fake_tensors(network)

        def count(tokens: int) -> tuple[int, int]:
            ids = torch.zeros(1, tokens, dtype=torch.long)
            mask = torch.ones(1, tokens, dtype=torch.bool)

            def predict() -> Tensor:
                with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
                    return network.base_model(
                        input_ids=ids, attention_mask=mask, use_cache=False
                    ).last_hidden_state

            return counted(predict)

        small, large = count(256), count(512)
    return [(b - a) / 256 for a, b in zip(small, large, strict=True)]


def targets_of(config: Mapping[str, Any]) -> list[str]:
    return ["c_attn"] if config["model_type"] == "gpt2" else ["q_proj", "v_proj"]


def language_row(config: Mapping[str, Any]) -> dict[str, Any]:
    key = next(k for k in LANGUAGE_DEPTH if k in config)

    def lora(changes: Mapping[str, Any]) -> list[float]:
        network = language_model({**config, **changes})
        inject_adapter_in_model(LoraConfig(r=16, target_modules=targets_of(config)), network)
        return [sum(p.numel() for n, p in network.named_parameters() if "lora_" in n) // 16]

    depth = {key: config[key]}
    row: dict[str, Any] = {"lora": int(at_full_depth(lora, depth)[0])}
    for way in WAYS:
        rates = at_full_depth(lambda c, way=way: language_rates({**config, **c}, way), depth)
        row[word(*way)] = [round(float(x)) for x in rates]
    return row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path, required=True)
    a = parser.parse_args()
    pipelines = json.loads(PUBLISHED_FILE.read_text())
    rows = json.loads(LANGUAGE_FILE.read_text())
    found = json.loads(a.out.read_text()) if a.out.exists() else {}
    for name, described in pipelines.items():
        if a.names and name not in a.names:
            continue
        parts = described["parts"]
        try:
            row = {} if name in ("flux_kontext", "flux_schnell") else image_row(name, described)
            found[name] = {"network": row, "vae": decoding_row(parts["vae"])}
        except Exception as e:
            import traceback; traceback.print_exc(); found[name] = {"error": str(e)}
        a.out.write_text(json.dumps(found, indent=1)); print(name, found[name], flush=True)
    for row in rows:
        hub = row["hub"][0]
        if a.names and hub not in a.names:
            continue
        try:
            found[hub] = language_row(row["config"])
        except Exception as e:
            import traceback; traceback.print_exc(); found[hub] = {"error": str(e)}
        a.out.write_text(json.dumps(found, indent=1)); print(hub, found[hub], flush=True)


if __name__ == "__main__":
    main()
