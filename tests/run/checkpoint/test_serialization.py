"""Trees to JSON and safetensors and back, exactly; snapshots."""

import json
import math
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from rlfactory.run.checkpoint.serialization import flatten, unflatten


def round_trip(tree: object, folder: Path) -> Any:
    values, tensors = flatten(tree)
    save_file(tensors, folder / "tensors")
    text = json.dumps(values, allow_nan=False)
    return unflatten(json.loads(text), load_file(folder / "tensors"))


PLAIN = [
    None,
    True,
    0,
    -(2**70),
    0.1,
    -0.0,
    math.inf,
    -math.inf,
    "",
    "\ud83d \n ä",
    [],
    (),
    {},
    (1, (2.5, None), [()]),
    {0: {"a": (0.9, 0.999)}, "0": 1, None: 2, (1, 2): 3},
    {"$": "tensor", "name": "x"},
    {"$": {"$": ()}},
]


@pytest.mark.parametrize("tree", PLAIN, ids=repr)
def test_plain_values_come_back_as_they_were(tree: object, tmp_path: Path) -> None:
    found = round_trip(tree, tmp_path)
    assert found == tree
    assert repr(found) == repr(tree), "types and the sign of zero"


def test_nan_comes_back(tmp_path: Path) -> None:
    assert math.isnan(round_trip([math.nan], tmp_path)[0])


DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8]


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bool], ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)], ids=str)
def test_every_bit_of_a_tensor_comes_back(
    dtype: torch.dtype, shape: tuple[int, ...], tmp_path: Path
) -> None:
    tensor = (torch.rand(shape) * 9 - 3).to(dtype)
    found = round_trip({"state": {0: tensor}}, tmp_path)["state"][0]
    assert found.dtype == dtype
    assert torch.equal(found, tensor)


def test_what_is_not_finite_keeps_its_bits(tmp_path: Path) -> None:
    tensor = torch.tensor([math.nan, math.inf, -math.inf, -0.0, 1e-45])
    found = round_trip([tensor], tmp_path)[0]
    assert torch.equal(found.view(torch.int32), tensor.view(torch.int32))


def test_views_and_shared_memory_are_saved_apart(tmp_path: Path) -> None:
    base = torch.arange(6.0).reshape(2, 3)
    tree = {"whole": base, "again": base, "turned": base.T, "row": base[1]}
    found = round_trip(tree, tmp_path)
    for name, tensor in tree.items():
        assert torch.equal(found[name], tensor)
    found["whole"].add_(1)
    assert torch.equal(found["again"], base)


def test_a_copy_is_taken_at_once() -> None:
    tensor = torch.zeros(2)
    _, tensors = flatten([tensor])
    tensor.add_(1)
    assert torch.equal(tensors["0"], torch.zeros(2))


def test_former_copies_are_not_held() -> None:
    _, former = flatten({"a": torch.zeros(2), "b": torch.zeros(2)})
    gone = weakref.ref(former["b"])
    _, latter = flatten({"a": torch.ones(2)}, reused=former)
    del former
    assert latter["a"].tolist() == [1, 1]
    assert gone() is None


def test_former_copies_lend_their_memory() -> None:
    _, former = flatten({"a": torch.zeros(2), "b": torch.zeros(2), "c": torch.zeros(2)})
    now = {"a": torch.ones(2), "b": torch.ones(3), "c": torch.ones(2).double()}
    _, tensors = flatten(now, former)
    assert tensors["a"] is former["a"]
    for name, tensor in now.items():
        assert torch.equal(tensors[name], tensor)
        assert tensors[name].dtype == tensor.dtype


def test_names_are_paths_and_no_two_are_alike() -> None:
    one, two = torch.zeros(1), torch.ones(1)
    values, tensors = flatten({"state": {0: {"exp_avg": one}, "0": {"exp_avg": two}}})
    assert tensors.keys() == {"state/0/exp_avg", "state/0/exp_avg_"}
    state = unflatten(values, tensors)["state"]
    assert (state[0]["exp_avg"].item(), state["0"]["exp_avg"].item()) == (0, 1)


@pytest.mark.parametrize("thing", [object(), {1, 2}, b"bytes", len])
def test_nothing_else_is_saved(thing: object) -> None:
    with pytest.raises(TypeError, match=r"state/a is a \w+, which a checkpoint can't hold"):
        flatten({"state": {"a": thing}})
