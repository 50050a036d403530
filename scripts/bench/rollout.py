"""The speed of a rollout relative to transformers' `generate`: same model, prompts and settings.

    python scripts/bench/rollout.py                        # a GPT-2 of 4 layers, random weights
    python scripts/bench/rollout.py --layers 12 --width 768 --vocabulary 50257 --batch 16 --new 32

    python scripts/bench/rollout.py --end 0.04             # each token is the last with p = 0.04
    python scripts/bench/rollout.py --prompt 256 --new 32 --group 8  # 8 responses to each prompt

The rollout also records log-probabilities and values, which `generate` would compute again.
Seconds are those of a thousand tokens.
"""

import tempfile
from pathlib import Path

import torch
from floor import clock_of
from sides import finish, machine, parser, turns
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from rlfactory.dynamics.token import Token
from rlfactory.model.causal_lm import CausalLM

END = "<|endoftext|>"


def save_tokenizer(folder: Path, vocabulary: int) -> None:
    """Write a tokenizer of whole words, the first of which ends a text."""
    words = {END: 0} | {f"w{i}": i for i in range(1, vocabulary)}
    tokenizer = Tokenizer(WordLevel(words, unk_token=END))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END).save_pretrained(folder)


@torch.no_grad()
def generated(model: CausalLM, prompt: Tensor, length: int, *, least: int | None) -> Tensor:
    """Responses by transformers' `generate`, as a rollout draws them: all tokens, temperature 1."""
    ids: Tensor = model.network.generate(
        input_ids=prompt,
        attention_mask=torch.ones_like(prompt),
        do_sample=True,
        top_k=0,
        top_p=1.0,
        max_new_tokens=length,
        min_new_tokens=least,
        pad_token_id=0,
    )
    return ids[:, prompt.shape[1] :]


def build(
    folder: Path, layers: int, width: int, vocabulary: int, ends: int, device: torch.device
) -> CausalLM:
    """A GPT-2 with random weights, saved and loaded as any other.

    The first `ends` of its tokens end a text.
    """
    save_tokenizer(folder, vocabulary)
    config = GPT2Config(
        vocab_size=vocabulary,
        n_positions=512,
        n_embd=width,
        n_layer=layers,
        n_head=width // 64,
        bos_token_id=0,
        eos_token_id=[*range(ends)],
    )
    GPT2LMHeadModel(config).save_pretrained(folder)
    return CausalLM(device, path=str(folder))


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--layers", type=int, default=4)
    made.add_argument("--width", type=int, default=256)
    made.add_argument("--vocabulary", type=int, default=4096)
    made.add_argument("--batch", type=int, default=32)
    made.add_argument("--prompt", type=int, default=8)
    made.add_argument("--group", type=int, default=1, help="responses to each prompt")
    made.add_argument("--new", type=int, default=75)
    made.add_argument("--end", type=float, default=0.0, help="share of tokens that end a text")
    made.add_argument("--rounds", type=int, default=8)
    made.add_argument("--threads", type=int, default=1, help="CPU threads of each side")
    made.add_argument("--gpu", action="store_true", help="on a GPU")
    a, began = made.parse_args(), machine()
    torch.set_num_threads(a.threads)
    device = torch.device("cuda" if a.gpu else "cpu")
    ends = max(1, round(a.end * a.vocabulary))
    with tempfile.TemporaryDirectory() as folder:
        model = build(Path(folder), a.layers, a.width, a.vocabulary, ends, device)
    prompt = torch.randint(ends, a.vocabulary, (a.batch // a.group, a.prompt), device=device)
    prompt = prompt.repeat_interleave(a.group, 0)
    mask = torch.ones_like(prompt, dtype=torch.bool)
    dynamics = Token(length=a.new, stop_at_end=a.end > 0)

    def ours() -> float:
        uniform = torch.rand(a.batch, a.new, device=device)
        return int(model.rollout(prompt, mask, dynamics, uniform).mask.sum()) / 1000

    def theirs() -> float:
        ids = generated(model, prompt, a.new, least=None if a.end else a.new)
        before = (ids < ends).cumsum(1) - (ids < ends).long()
        return (int((before == 0).sum()) if a.end else ids.numel()) / 1000

    works = {"generate": theirs, "rlfactory": ours}
    finish(a, began, {"rollout": turns(works, a.rounds, clock_of(device))})


if __name__ == "__main__":
    main()
