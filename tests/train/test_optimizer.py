"""The optimiser is a choice like any other; the one of 8 bits comes from elsewhere."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from rlfactory.config.overrides import plan_from_words
from rlfactory.config.schema.targets import instantiate

STAND_IN = """
from torch.optim import AdamW


class AdamW8bit(AdamW):
    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=1e-2,
        amsgrad=False,
        optim_bits=32,
        args=None,
        min_8bit_size=4096,
        is_paged=False,
    ):
        super().__init__(params, lr, betas, eps, weight_decay)
"""
"""What the documentation of bitsandbytes 0.50 says of its class."""


@pytest.fixture
def bitsandbytes(tmp_path: Path) -> Iterator[Path]:
    """A folder with a stand-in for the package."""
    (tmp_path / "site" / "bitsandbytes" / "optim").mkdir(parents=True)
    package = tmp_path / "site" / "bitsandbytes"
    (package / "__init__.py").write_text("raise ImportError('the plan imports nothing')\n")
    (package / "optim" / "adamw.py").write_text(STAND_IN)
    (package / "optim" / "__init__.py").write_text("from .adamw import AdamW8bit\n")
    yield tmp_path / "site"
    for name in [name for name in sys.modules if name.startswith("bitsandbytes")]:
        del sys.modules[name]


def test_where_it_is_missing_the_plan_says_what_to_install(refused: Callable[..., str]) -> None:
    said = refused("check", "optimizer=adamw_8bit")
    assert "optimizer._target_: bitsandbytes.optim.AdamW8bit can't be found" in said
    assert "pip install 'rlfactory[gpu]'" in said


@pytest.mark.slow
def test_where_it_is_there_the_plan_knows_its_keys(bitsandbytes: Path, command) -> None:
    words = ["check", "model=sd35", "optimizer=adamw_8bit"]
    shown = command(*words, path=(bitsandbytes,))
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "adamw_8bit" in shown.stdout
    shown = command(*words, "+optimizer.min_8bit_sise=1", path=(bitsandbytes,))
    assert shown.returncode == 2
    assert "Did you mean optimizer.min_8bit_size?" in shown.stderr


def test_it_is_made_like_any_other(bitsandbytes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (bitsandbytes / "bitsandbytes" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(bitsandbytes)
    parameter = nn.Parameter(torch.ones(2))
    node = {"_target_": "bitsandbytes.optim.AdamW8bit", "lr": 0.5}
    made = instantiate(node, "optimizer", params=[parameter])
    assert type(made).__name__ == "AdamW8bit"
    assert made.param_groups[0]["lr"] == 0.5
    assert made.param_groups[0]["params"][0] is parameter


@pytest.mark.parametrize(
    ("words", "rate"),
    [
        ([], 1e-4),
        (["model=sd35"], 3e-4),
        (["optimizer=adamw", "model=sd35"], 3e-4),
        (["optimizer.lr=1e-5", "model=sd35"], 1e-5),
        (["optimizer._target_=torch.optim.SGD", "model=sd35"], 3e-4),
    ],
    ids=str,
)
def test_a_choice_of_optimiser_leaves_the_learning_rate_to_the_model(
    words: list[str], rate: float
) -> None:
    made = plan_from_words(*words)
    assert made.config["optimizer"]["lr"] == rate
    assert made.choices["optimizer"] == ("SGD" if "SGD" in str(words) else "adamw")
