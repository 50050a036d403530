"""How different is a completion from the others of its prompt?"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from rlfactory.reward.base import Reward, RewardError, Samples, completions
from rlfactory.reward.pretrained import loading
from rlfactory.types import PositiveInt
from rlfactory.zoo.models import resolve

_INDEX = "modules.json"
_PACKAGE = "package:"


def distance_to_others(embeddings: Tensor, groups: Tensor) -> Tensor:
    """`1 - ` the mean cosine similarity to the others of one's group, `[B]` in [0, 2].

    `embeddings` is `[B, D]`, `groups` `[B]`; NaN where a group has one member.
    """
    unit = normalize(embeddings.double(), dim=1)
    _, member, size = torch.unique(groups, return_inverse=True, return_counts=True)
    total = torch.zeros(len(size), unit.shape[1], dtype=unit.dtype).index_add(0, member, unit)
    others = (size - 1)[member]
    similarity: Tensor = (unit * (total[member] - unit)).sum(1) / others
    # 0 / 0 above is NaN for a lone sample, which is what it should be
    return (1 - similarity).clamp(0, 2).float()


class Diversity(Reward):
    """`diversity`: `1 - ` mean cosine similarity of a completion's embedding to its group's others.

    `path` is a model of sentence-transformers: a hub id, a folder, or `package:NAME`, an installed
    package that holds one. A text of white space has no score and is nobody's other. RewardError
    without the extra `embeddings`.
    """

    media = "texts"
    metadata = ()
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
        self.batch_size = batch_size
        self.model = _load(path, device, getattr(torch, dtype))

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Scores `[B]` in [0, 2], NaN where there is no other to compare with."""
        texts = completions(samples)
        found = torch.full((len(texts),), torch.nan)
        said = [i for i, text in enumerate(texts) if text.strip()]
        if said:
            embeddings = self.embed([texts[i] for i in said])
            found[said] = distance_to_others(embeddings, samples.groups[said])
        return {"diversity": found}

    def embed(self, texts: list[str]) -> Tensor:
        """Embeddings `[B, D]` on the CPU; texts that are equal have equal ones."""
        # a text's batch moves its last digits, and a difference to itself would be paid for
        different = list(dict.fromkeys(texts))
        found: Tensor = self.model.encode(
            different,
            batch_size=self.batch_size,
            convert_to_tensor=True,
            show_progress_bar=False,
        ).cpu()
        place = {text: i for i, text in enumerate(different)}
        return found[[place[text] for text in texts]]


def _load(path: str, device: torch.device, dtype: torch.dtype) -> Any:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise RewardError(
            "reward=diversity needs a package that is not installed; "
            "type pip install 'rlfactory[embeddings]'"
        ) from error
    with loading("reward.path", path, "a model of sentence-transformers") as locate:
        return SentenceTransformer(
            locate(_source(path)),
            device=str(device),
            trust_remote_code=False,
            model_kwargs={"dtype": dtype},
        )


def _source(path: str) -> str:
    """A folder that holds a model's index, or a hub id; ValueError where there is none."""
    if path.startswith(_PACKAGE):
        return str(_inside(path.removeprefix(_PACKAGE)))
    source = resolve(path, _INDEX)
    if path.startswith("zoo:"):
        raise ValueError("none ships")
    return source


def _inside(package: str) -> Path:
    """The folder in an installed package that holds a model; no code of it is run."""
    spec = find_spec(package) if package.isidentifier() else None
    if spec is None:
        raise ValueError(f"no package {package} is installed")
    places = spec.submodule_search_locations or []
    found = sorted(file.parent for place in places for file in Path(place).rglob(_INDEX))
    if len(found) != 1:
        raise ValueError(f"the package holds {len(found)} files {_INDEX}, and should hold one")
    return found[0]
