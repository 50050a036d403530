"""Bytes and kernel launches of networks of published shapes, on fake tensors of CUDA.

    python tests/device/fake_cuda.py sd35_medium        # one JSON object for each name

One item, bf16, LoRA for image models; a language model learns all its weights from one response.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
BENCH = HERE.parents[1] / "scripts" / "bench"
sys.path[:0] = [str(HERE), str(BENCH), str(HERE.parents[1] / "src")]

from pretended.guard import NoGuardError, load_guard  # noqa: E402

try:
    load_guard()
except NoGuardError as error:
    print(json.dumps({"no_device": str(error)}), flush=True)
    sys.exit()

import torch  # noqa: E402
import torch.cuda.amp.common  # noqa: E402
from full_size import adapter  # noqa: E402
from torch import Tensor  # noqa: E402
from transformers import AutoConfig, AutoModelForCausalLM  # noqa: E402

from rlfactory.model.precision import Precision  # noqa: E402
from rlfactory.rollout import Condition  # noqa: E402

BF16 = Precision(weights="bfloat16", rollout="bfloat16", learning="bfloat16")
LANGUAGE_MODELS: dict[str, dict[str, Any]] = {
    # the config.json of meta-llama/Llama-3.2-1B
    "llama_1b": {
        "model_type": "llama",
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "vocab_size": 128256,
        "tie_word_embeddings": True,
    },
}
TOKENS = 1024


def image_model(name: str) -> tuple[Any, Callable[[], Callable[[], Tensor]]]:
    """The network of an image model on the meta device, and what makes a prediction for it."""
    model = adapter(name, {}, torch.bfloat16, precision=BF16)
    texts = {key: value.shape for key, value in model.encode(["a"]).tensors.items()}

    def make() -> Callable[[], Tensor]:
        tensors = {k: empty(*shape, dtype=torch.bfloat16) for k, shape in texts.items()}
        if model.__dict__.get("_negative"):
            model._negative = {k: v[:1].clone() for k, v in tensors.items()}
        x, t = empty(1, *model.resolution.shape), empty(1)
        return lambda: model.predict(x, t, Condition(tensors))

    return model.network, make


def language_model(name: str) -> tuple[Any, Callable[[], Callable[[], Tensor]]]:
    """A causal language model on the meta device, and what computes its logits."""
    config = AutoConfig.for_model(**LANGUAGE_MODELS[name])
    with torch.device("meta"):
        network = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()

    def make() -> Callable[[], Tensor]:
        ids = torch.empty(1, TOKENS, dtype=torch.int64, device="cuda")

        def logits() -> Tensor:
            with torch.autocast("cuda", torch.bfloat16):
                found: Tensor = network(input_ids=ids, use_cache=False).logits
            return found

        return logits

    return network, make


def empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A fake tensor on the GPU."""
    return torch.empty(shape, dtype=dtype, device="cuda")


def measure(name: str) -> dict[str, float]:
    """GiB and kernel launches of sampling, and of a forward and a backward pass of learning."""
    make_model = language_model if name in LANGUAGE_MODELS else image_model
    network, make = make_model(name)
    with ghost.fake_tensors("cuda"):
        ghost.with_fake_tensors(network, "cuda")
        if name in LANGUAGE_MODELS:
            network.tie_weights()
        predict = make()
        found = {"weights": sum(p.numel() * p.element_size() for p in network.parameters())}
        with ghost.Live() as live, ghost.Launches() as sampling, torch.no_grad():
            predict()
        found["sampling"] = live.peak
        with ghost.Live() as live:
            with ghost.Launches() as forward:
                loss = predict().float().pow(2).mean()
            found["saved"] = live.now
            with ghost.Launches() as backward:
                loss.backward()
        found["learning"] = live.peak
    gib = {key: round(value / 2**30, 3) for key, value in found.items()}
    counted = {"sampling": sampling, "forward": forward, "backward": backward}
    return gib | {f"{k}_launches": launches.counts.total() for k, launches in counted.items()}


def pretend() -> None:
    """Say that there is a GPU, for autocast."""
    torch.cuda.amp.common.amp_definitely_not_available = lambda: False
    torch.cuda.is_available = lambda: True
    torch.cuda.is_bf16_supported = lambda *_, **__: True


def main() -> None:
    pretend()
    for name in sys.argv[1:]:
        print(json.dumps({name: measure(name)}), flush=True)


if __name__ == "__main__":
    main()
