"""What can be wrong with a file of tensors: its header, or tensors that are not the model's."""

import json
import random
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import torch
from faulty.harm.places import Change, remove, write
from faulty.harm.values import TREES, edited
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

Tensors = dict[str, Tensor]


def _header_length(path: Path, chance: random.Random, size: int) -> None:
    data = path.read_bytes()
    length = chance.choice([0, 1, 7, len(data), 2**31, 2**63, 2**64 - 1, 10**8 + 1])
    write(path, length.to_bytes(8, "little") + data[8:])


def _header(path: Path, chance: random.Random, size: int) -> None:
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    kind = chance.choice([*TREES])
    header = edited(data[8:end], kind, ".line", chance, size)
    write(path, len(header).to_bytes(8, "little") + header + data[end:])


def _offsets(path: Path, chance: random.Random, size: int) -> None:
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    name = chance.choice([key for key in header if key != "__metadata__"])
    entry = header[name]
    wrong = [2**64 - 1, 2**63, -1, len(data) * 2, 0]
    kinds = {
        "data_offsets": [chance.choice(wrong), chance.choice(wrong)],
        "shape": [chance.choice([2**32, 2**63, 0, -1])] * 2,
        "dtype": chance.choice(["F64", "I8", "BOOL", "F8_E4M3", "X"]),
    }
    key = chance.choice([*kinds])
    header[name] = {**entry, key: kinds[key]}
    text = json.dumps(header).encode()
    write(path, len(text).to_bytes(8, "little") + text + data[end:])


def _less(tensors: Tensors, name: str, chance: random.Random) -> None:
    del tensors[name]


def _more(tensors: Tensors, name: str, chance: random.Random) -> None:
    tensors[chance.choice([f"{name}x", "x", "other/x", "state/0/x", "state/9999/exp_avg"])] = (
        tensors[name].clone()
    )


def _named(tensors: Tensors, name: str, chance: random.Random) -> None:
    tensors[f"{name}x"] = tensors.pop(name)


def _shape(tensors: Tensors, name: str, chance: random.Random) -> None:
    tensor = tensors[name]
    shapes = [
        tensor.flatten(),
        tensor.unsqueeze(0),
        torch.zeros(3),
        torch.zeros(0),
        torch.zeros(()),
        torch.cat([tensor.flatten(), tensor.flatten()]),
        tensor.flatten()[: max(1, tensor.numel() // 2)],
        tensor.transpose(0, -1) if tensor.ndim > 1 else torch.zeros(2, 2),
    ]
    tensors[name] = chance.choice(shapes).contiguous().clone()


def _all_shapes(tensors: Tensors, name: str, chance: random.Random) -> None:
    """As of another rank of adapters."""
    for key, tensor in tensors.items():
        if tensor.ndim:
            tensors[key] = tensor[: max(1, len(tensor) // 2)].contiguous().clone()


def _type(tensors: Tensors, name: str, chance: random.Random) -> None:
    kinds = [torch.float64, torch.int8, torch.bool, torch.bfloat16, torch.int64, torch.complex64]
    tensors[name] = tensors[name].to(chance.choice(kinds))


def _extreme(tensors: Tensors, name: str, chance: random.Random) -> None:
    tensors[name] = torch.full_like(tensors[name], chance.choice([torch.nan, torch.inf, 1e30]))


def _exchanged(tensors: Tensors, name: str, chance: random.Random) -> None:
    other = chance.choice([*tensors])
    tensors[name], tensors[other] = tensors[other].clone(), tensors[name].clone()


def _none(tensors: Tensors, name: str, chance: random.Random) -> None:
    tensors.clear()


WRONG: Mapping[str, Callable[[Tensors, str, random.Random], None]] = {
    "a tensor less": _less,
    "a tensor more": _more,
    "a tensor renamed": _named,
    "a tensor of another shape": _shape,
    "tensors of other shapes": _all_shapes,
    "a tensor of another type": _type,
    "a tensor of extreme values": _extreme,
    "two tensors exchanged": _exchanged,
    "no tensors": _none,
}


def _resaved(kind: str, path: Path, chance: random.Random, size: int) -> None:
    try:
        tensors = dict(load_file(path))
    except (OSError, SafetensorError):  # another damage was there before
        return
    if tensors:
        WRONG[kind](tensors, chance.choice(sorted(tensors)), chance)
    remove(path)
    save_file({name: t.clone() for name, t in tensors.items()}, path)


TENSORS: Mapping[str, Change] = {
    "a header of another length": _header_length,
    "a header with other values": _header,
    "a tensor that lies elsewhere": _offsets,
    **{kind: partial(_resaved, kind) for kind in WRONG},
}
