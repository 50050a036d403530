"""Diversity reward: the mean cosine distance of a completion to the others of its group."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from rlfactory.model.pipelines.local_models import resolve
from rlfactory.reward.backbones.pretrained import loading
from rlfactory.reward.base import Reward, Samples, not_installed, require_texts
from rlfactory.utils.types import PositiveInt

_INDEX = "modules.json"
_PACKAGE = "package:"


def distance_to_others(embeddings: Tensor, groups: Tensor) -> Tensor:
    """One minus the mean cosine similarity to the other members of the group, `[B]` in [0, 2].

    `embeddings` is `[B, D]`, `groups` `[B]`; NaN where a group has one member.
    """
    # float64: below, each member is subtracted from its group's sum
    unit = normalize(embeddings.double(), dim=1)
    _, member, size = torch.unique(groups, return_inverse=True, return_counts=True)
    total = torch.zeros(len(size), unit.shape[1], dtype=unit.dtype).index_add(0, member, unit)
    others = (size - 1)[member]
    similarity: Tensor = (unit * (total[member] - unit)).sum(1) / others
    # for a sample alone in its group, 0 / 0 above gives the NaN that it should have
    return (1 - similarity).clamp(0, 2).float()


class Diversity(Reward):
    """`diversity`: one minus the mean cosine similarity of a completion to the others of its group.

    A text of white space alone is NaN, and is not compared with others. RewardError where the model
    can't be loaded, or without the extra `embeddings`.
    """

    media = "texts"
    compares_group = True
    main = "diversity"

    def __init__(
        self,
        device: torch.device,
        *,
        path: str = "sentence-transformers/all-MiniLM-L6-v2",
        dtype: Literal["float32", "float16"] = "float32",
        batch_size: PositiveInt = 64,
    ) -> None:
        """
        Args:
            path: A model of sentence-transformers: a hub id, a folder, or package:NAME, see
                docs/reward/diversity.md.
            dtype: float32 | float16.
            batch_size: Texts in one forward pass.
        """
        self.batch_size = batch_size
        self.model = _load(path, device, getattr(torch, dtype))

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]` in [0, 2], NaN where there is no other to compare with."""
        texts = require_texts(samples)
        scores = torch.full((len(texts),), torch.nan)
        rows = [i for i, text in enumerate(texts) if text.strip()]
        if rows:
            embeddings = self.embed([texts[i] for i in rows])
            scores[rows] = distance_to_others(embeddings, samples.groups[rows])
        return {"diversity": scores}

    def embed(self, texts: list[str]) -> Tensor:
        """Embeddings `[B, D]` on the CPU; equal texts have equal ones."""
        # a text's rounding depends on its batch: embedded twice, it would differ from itself
        distinct = list(dict.fromkeys(texts))
        embeddings: Tensor = self.model.encode(
            distinct, batch_size=self.batch_size, convert_to_tensor=True, show_progress_bar=False
        ).cpu()
        row = {text: i for i, text in enumerate(distinct)}
        return embeddings[[row[text] for text in texts]]


def _load(path: str, device: torch.device, dtype: torch.dtype) -> Any:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise not_installed("diversity", "embeddings") from error
    with loading("reward.path", path, "a model of sentence-transformers") as locate:
        return SentenceTransformer(
            locate(_source(path)),
            device=str(device),
            trust_remote_code=False,
            model_kwargs={"dtype": dtype},
        )


def _source(path: str) -> str:
    """A folder with a model's index (modules.json), or a hub id; ValueError where there is none."""
    if path.startswith(_PACKAGE):
        return str(_folder_in_package(path.removeprefix(_PACKAGE)))
    source = resolve(path, _INDEX)
    if path.startswith("zoo:"):
        raise ValueError("the zoo has none")
    return source


def _folder_in_package(package: str) -> Path:
    """The folder with a model in an installed package, found without importing the package."""
    spec = find_spec(package) if package.isidentifier() else None
    if spec is None:
        raise ValueError(f"no package {package} is installed")
    roots = spec.submodule_search_locations or []
    folders = sorted(file.parent for root in roots for file in Path(root).rglob(_INDEX))
    if len(folders) != 1:
        raise ValueError(f"the package has {len(folders)} files {_INDEX}; it must have one")
    return folders[0]
