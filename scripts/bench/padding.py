"""What padding costs in learning from texts of unequal lengths: padded in any order, padded with
micro-batches of like length, and packed into one row whose attention is block-diagonal.

    python scripts/bench/padding.py            # half a minute on one core

A random Llama of 4 layers of width 256; forward and backward pass over the hidden states, which is
where padding is computed with (logits are of real tokens alone in each case).
"""

import argparse
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaModel

SHAPE = {
    **{"vocab_size": 4096, "hidden_size": 256, "intermediate_size": 1024},
    **{"num_hidden_layers": 4, "num_attention_heads": 4, "max_position_embeddings": 4096},
}
Passes = Iterator[dict[str, Tensor]]


def lengths_of(kind: str, count: int, longest: int, generator: torch.Generator) -> list[int]:
    """Of texts: `even` between a sixteenth of the longest and the longest; `few`, mostly short."""
    share = torch.rand(count, generator=generator)
    share = share if kind == "even" else share**3
    return [int(x) for x in (longest * (1 / 16 + 15 / 16 * share)).long().tolist()]


def padded(texts: list[Tensor], rows: int) -> Passes:
    """Micro-batches of `rows` texts, padded on the right, as wide as their longest."""
    for start in range(0, len(texts), rows):
        part = texts[start : start + rows]
        yield {"input_ids": torch.nn.utils.rnn.pad_sequence(part, batch_first=True)}


def packed(texts: list[Tensor], rows: int) -> Passes:
    """Each micro-batch in one row; positions begin again at each text, and so do the masks."""
    for start in range(0, len(texts), rows):
        part = texts[start : start + rows]
        positions = torch.cat([torch.arange(len(text)) for text in part])[None]
        number = torch.cat([torch.full((len(text),), i) for i, text in enumerate(part)])
        causal = torch.ones(len(number), len(number), dtype=torch.bool).tril()
        mask = (causal & (number[:, None] == number))[None, None]
        yield {
            "input_ids": torch.cat(part)[None],
            "position_ids": positions,
            "attention_mask": mask,
        }


def seconds(network: LlamaModel, passes: Callable[[], Passes]) -> float:
    """Of forward and backward passes; the least of two rounds."""
    found = []
    for _ in range(2):
        begin = time.process_time()
        for options in passes():
            network(**options, use_cache=False).last_hidden_state.square().mean().backward()
        found.append(time.process_time() - begin)
    return min(found)


def main(count: int, rows: int) -> None:
    """Print CPU seconds by lengths and by how texts are batched."""
    torch.manual_seed(0)
    network = LlamaModel(LlamaConfig(**SHAPE))
    print("lengths, longest | real tokens | any order | like length | packed, any order | like")
    for kind in ("even", "few"):
        for longest in (64, 256):
            generator = torch.Generator().manual_seed(1)
            sizes = lengths_of(kind, count, longest, generator)
            texts = [torch.randint(4096, (size,), generator=generator) for size in sizes]
            ordered = sorted(texts, key=len)
            ways = [(padded, texts), (padded, ordered), (packed, texts), (packed, ordered)]
            times = [seconds(network, lambda w=way, t=t: w(t, rows)) for way, t in ways]
            shown = " | ".join(f"{value:.2f}" for value in times)
            print(f"{kind}, {longest} | {sum(sizes):,} | {shown}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=16)
    parser.add_argument("--rows", type=int, default=4, help="texts in a micro-batch")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    main(arguments.count, arguments.rows)
