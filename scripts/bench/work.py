"""FLOPs, bytes and kernel launches of a network's passes, counted on fake tensors.

`Counter` sees every operator that runs within it, forward and backward: the FLOPs of matrix
products, convolutions and attention as torch's FlopCounterMode counts them, the bytes that all
other operators read and write, and how many operators start a kernel (views start none).
"""

from collections import Counter as Tally
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

WITHOUT_KERNEL = (
    "empty",
    "detach",
    "lift_fresh",
    "_unsafe_view",
    "alias",
    "expand",
    "is_same_size",
)


def convolution_backward_flops(given: Tensor, x: Tensor, weight: Tensor, *options: Any) -> int:
    """As many as forward for each of the gradients of input and weight that is wanted.

    torch's formula takes the weight's gradient of a grouped convolution for that of a full one.
    """
    outputs = given.shape[0] * given.shape[2:].numel()
    return 2 * outputs * weight.numel() * sum(options[-1][:2])


class Counter(TorchDispatchMode):
    """Counts `flops`, `bytes` (of operators without FLOPs) and `launches`."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = self.bytes = self.launches = 0
        self.by_name: Tally[str] = Tally()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self._count(func, args, kwargs or {}, result)
        return result

    def _count(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        name = func._schema.name.removeprefix("aten::")
        if func.is_view or name.startswith(WITHOUT_KERNEL):
            return
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        made = [t for t in tree_leaves(result) if isinstance(t, Tensor)]
        if not made:
            return
        self.launches += 1
        self.by_name[name] += 1
        if name == "_scaled_dot_product_flash_attention_for_cpu":
            self.flops += sdpa_flop_count(*(t.shape for t in tensors[:3]))
        elif name == "_scaled_dot_product_flash_attention_for_cpu_backward":
            self.flops += sdpa_backward_flop_count(*(t.shape for t in tensors[:4]))
        elif name == "convolution_backward":
            self.flops += convolution_backward_flops(*args)
        elif (formula := flop_registry.get(func._overloadpacket)) is not None:
            self.flops += formula(*args, **kwargs, out_val=result)
        else:
            self.bytes += sum(t.numel() * t.element_size() for t in (*tensors, *made))
