"""Chroma: its mask reaches all blocks, with gradient checkpointing too."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rlfactory.model.chroma import Chroma
from rlfactory.model.memory import Memory
from rlfactory.utils.errors import ModelError

Make = Callable[..., Chroma]


@pytest.fixture
def make(chroma_folder: Path) -> Make:
    def build(**options: object) -> Chroma:
        known = {"path": str(chroma_folder), "size": 64, "text_tokens": 16}
        return Chroma(torch.device("cpu"), **(known | options))

    return build


@pytest.mark.parametrize("checkpointing", [False, True])
def test_every_block_gets_the_mask_of_its_own_pass(make: Make, checkpointing: bool) -> None:
    model = make(finetune="full", memory=Memory(gradient_checkpointing=checkpointing))
    masks: list[torch.Tensor] = []
    for block in (*model.network.transformer_blocks, *model.network.single_transformer_blocks):

        def listen(_: object, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
            given = [*args, kwargs.get("attention_mask")]
            masks.extend(each.products for each in given if hasattr(each, "products"))

        block.register_forward_pre_hook(listen, with_kwargs=True)
    x, t = torch.randn(1, *model.resolution.shape), torch.tensor([0.5])
    conditions = [model.encode([prompt]) for prompt in ("a cat", "two blue stars above a square")]
    losses = [model.predict(x, t, condition).square().mean() for condition in conditions]
    for loss in losses:  # checkpoints are computed again after the other pass
        loss.backward()
    of_each = [(int(condition.tensors["mask"].sum()) + 16) ** 2 for condition in conditions]
    assert of_each[0] != of_each[1]
    passes = 2 if checkpointing else 1
    expected = [n for _ in range(passes) for n in of_each for _ in range(4)]
    assert [int(mask.sum()) for mask in masks] == expected
    assert len({mask.data_ptr() for mask in masks}) == 2


def test_one_token_of_the_padding_is_read_and_the_rest_weighed_less(make: Make) -> None:
    mask = make().encode(["a cat"]).tensors["mask"]
    assert mask.dtype == torch.float32
    length = len(make().pipe.tokenizer("a cat").input_ids)
    assert mask.tolist() == [[1.0] * (length + 1) + [0.0] * (15 - length)]


def test_it_has_no_guidance_as_an_input(make: Make) -> None:
    assert make().embedded_guidance is None
    assert "embedded_guidance" in Chroma.absent


def test_a_checkpoint_of_another_family_is_refused(
    make: Make, flux_folders: dict[str, Path]
) -> None:
    with pytest.raises(ModelError, match=r"is a FluxPipeline.*type model=flux model\.path"):
        make(path=str(flux_folders["dev"]))
