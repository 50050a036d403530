"""Stable Diffusion XL: what its network is told beside the text."""

from pathlib import Path

import pytest
import torch

from rlfactory.model.sdxl import SDXL


def opened(folder: Path, **options: object) -> SDXL:
    return SDXL(torch.device("cpu"), path=str(folder), size=64, **options)


def test_it_is_told_the_size_without_a_crop(sdxl_folder: Path) -> None:
    model = opened(sdxl_folder, guidance=1.0)
    text = model.encode(["a star"]).tensors
    told = model._added_conditions(torch.zeros(1, 4, 6, 8), text)
    assert told["time_ids"].tolist() == [[48, 64, 0, 0, 48, 64]]
    assert told["text_embeds"] is text["pooled"]


@pytest.mark.parametrize(("negative", "zero"), [("", True), ("stars", False)])
def test_an_empty_negative_prompt_is_zeros(sdxl_folder: Path, negative: str, zero: bool) -> None:
    model = opened(sdxl_folder, guidance=2.0, negative_prompt=negative)
    assert model._negative is not None
    assert all(bool((tensor == 0).all()) == zero for tensor in model._negative.values())
    empty = model.encode([""]).tensors
    assert all((tensor != 0).any() for tensor in empty.values()), "as a prompt it is encoded"
