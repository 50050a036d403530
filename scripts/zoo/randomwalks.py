"""Trains `zoo:randomwalks`: a small GPT-2, on random walks on a graph.

python scripts/zoo/randomwalks.py  # half a minute
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from tokenizers import Regex, Tokenizer
from tokenizers.decoders import Fuse
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from rlfactory.prompts.randomwalks import GOAL, LONGEST, NODES, adjacency, optimality

END = "<|endoftext|>"
OUT = Path(__file__).parents[2] / "src" / "rlfactory" / "model" / "zoo" / "weights" / "randomwalks"


def random_walks(count: int, rng: np.random.Generator) -> list[str]:
    """`count` random walks of at most ten nodes from random nodes other than the goal."""
    edges = adjacency()
    walks = []
    for start in rng.integers(1, len(NODES), count):
        nodes = [int(start)]
        while len(nodes) < LONGEST and nodes[-1] != GOAL and edges[nodes[-1]].any():
            nodes.append(int(rng.choice(np.flatnonzero(edges[nodes[-1]]))))
        walks.append("".join(NODES[node] for node in nodes))
    return walks


def letter_tokenizer(letters: str = NODES) -> PreTrainedTokenizerFast:
    """A tokenizer with an end-of-text token, which is 0, and a token for each of `letters`."""
    vocabulary = {token: i for i, token in enumerate([END, *letters])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token=END))
    tokenizer.pre_tokenizer = Split(Regex("."), "isolated")
    tokenizer.decoder = Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, bos_token=END)


def network(vocabulary: int) -> GPT2LMHeadModel:
    config = GPT2Config(
        vocab_size=vocabulary,
        n_positions=16,
        n_embd=64,
        n_layer=3,
        n_head=4,
        bos_token_id=0,
        eos_token_id=0,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    return GPT2LMHeadModel(config)


def rows(tokenizer: PreTrainedTokenizerFast, walks: list[str]) -> torch.Tensor:
    """`[N, LONGEST + 2]`: an end, the walk, ends."""
    padded = [END + walk + END * (LONGEST + 1 - len(walk)) for walk in walks]
    return torch.tensor(tokenizer(padded).input_ids)


def train(model: GPT2LMHeadModel, data: torch.Tensor, steps: int) -> float:
    """Next-token loss up to the first end; returns the last one."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    targets = data.clone()
    ends = (data == 0).cumsum(1)
    targets[ends > 2] = -100
    for _ in range(steps):
        index = torch.randint(len(data), (128,))
        loss = model(input_ids=data[index], labels=targets[index]).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return float(loss)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--walks", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=600)
    args = parser.parse_args()
    torch.manual_seed(0)
    walks = random_walks(args.walks, np.random.default_rng(0))
    tokenizer = letter_tokenizer()
    model = network(len(tokenizer))
    loss = train(model, rows(tokenizer, walks), args.steps)
    model.to(torch.float16).save_pretrained(args.out)
    tokenizer.save_pretrained(args.out)
    mean = sum(map(optimality, walks)) / len(walks)
    (args.out / "README.md").write_text(
        "# randomwalks\n\nA GPT-2 of three layers that has seen random walks on the graph of"
        " `rlfactory.prompts.randomwalks`, by `scripts/zoo/randomwalks.py`.\n\n"
        f"Made with: {args.walks:,} walks, {args.steps:,} steps; last loss {loss:.3f}. The walks'"
        f" own optimality is {mean:.3f}.\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
