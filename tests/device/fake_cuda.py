"""Bytes and kernel launches of networks of published shapes, on fake tensors of CUDA.

    python tests/device/fake_cuda.py sd35_medium        # one JSON object for each name

One item, bf16, LoRA for image models; a language model learns all its weights from one response.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

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
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from transformers import AutoConfig, AutoModelForCausalLM  # noqa: E402

from rlfactory.model.precision import Precision  # noqa: E402
from rlfactory.rollout import Condition  # noqa: E402
from rlfactory.tools.fake_tensors import LAUNCHES, Counting, fake_tensors, with_fake_tensors  # noqa: E402

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


def flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Attention by the kernel that CUDA would take, which fake tensors don't choose by themselves:
    flash attention in half precision, else the memory-efficient one.
    """
    if torch.is_autocast_enabled("cuda"):
        dtype = torch.get_autocast_dtype("cuda")
        query, key, value = (tensor.to(dtype) for tensor in (query, key, value))
    if enable_gqa:
        repeats = query.shape[1] // key.shape[1]
        key, value = (tensor.repeat_interleave(repeats, 1) for tensor in (key, value))
    if query.dtype == torch.float32 or attn_mask is not None:
        efficient = torch.ops.aten._scaled_dot_product_efficient_attention
        saves = torch.is_grad_enabled()
        return efficient(query, key, value, attn_mask, saves, 0.0, is_causal, scale=scale)[0]
    flash = torch.ops.aten._scaled_dot_product_flash_attention
    return flash(query, key, value, 0.0, is_causal, return_debug_mask=False, scale=scale)[0]


@contextmanager
def fake_gpu() -> Iterator[FakeTensorMode]:
    """Every tensor created within the `with` is a fake one; attention is CUDA's."""
    attention = mock.patch.object(F, "scaled_dot_product_attention", flash_attention)
    with fake_tensors() as mode, attention:
        yield mode


def measure(name: str) -> dict[str, float]:
    """GiB and kernel launches of sampling, and of a forward and a backward pass of learning."""
    make_model = language_model if name in LANGUAGE_MODELS else image_model
    network, make = make_model(name)
    with fake_gpu() as mode:
        with_fake_tensors(network, mode, "cuda")
        if name in LANGUAGE_MODELS:
            network.tie_weights()
        predict = make()
        found = {"weights": sum(p.numel() * p.element_size() for p in network.parameters())}
        with Counting() as sampling, torch.no_grad():
            predict()
        with Counting() as learning:
            loss = predict().float().pow(2).mean()
            saved, forward = learning.now, learning.work[LAUNCHES]
            loss.backward()
    found |= {"sampling": sampling.peak, "saved": saved, "learning": learning.peak}
    backward = learning.work[LAUNCHES] - forward
    counted = {"sampling": sampling.work[LAUNCHES], "forward": forward, "backward": backward}
    gib = {key: round(value / 2**30, 3) for key, value in found.items()}
    return gib | {f"{key}_launches": launches for key, launches in counted.items()}


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
