"""`rlfactory reward-model`: pairs from a file, the Bradley-Terry loss, a network that learns by it;
from pairs to a folder, and from there to PPO with four networks.
"""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import yaml
from load_script import load_script
from tiny_pipelines import chat_tokenizer
from transformers import AutoTokenizer, GPT2ForSequenceClassification

from rlfactory.cli import app
from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError
from rlfactory.model.causal_lm import CausalLM
from rlfactory.model.lm.prompt_format import PromptFormat
from rlfactory.prompts.base import PromptError
from rlfactory.prompts.ops.chat import ChatText
from rlfactory.reward.base import Samples
from rlfactory.reward.reward_model import RewardModel
from rlfactory.run.folder import RunFolder
from rlfactory.run.scores import Scores
from rlfactory.tools.train_reward_model import (
    EncodedPair,
    Pair,
    RewardModelOptions,
    bradley_terry,
    encode_pair,
    read_pairs,
    scores_of,
    split_pairs,
    train,
)
from rlfactory.utils.errors import TrainingError, UserError

SCRIPT = Path(__file__).parents[2] / "scripts" / "examples" / "summaries.py"
FEW = ["--epochs", "2", "--lr", "1e-3", "--batch", "16"]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("pairs") / "pairs.jsonl"
    rows = [
        {"prompt": f"Film {i}:", "chosen": " good.", "rejected": " dull stuff."} for i in range(80)
    ]
    file.write_text("\n".join(map(json.dumps, rows)))
    return file


@pytest.fixture(scope="module")
def scorer(gpt2_folder: Path, pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("made") / "rm"
    words = ["reward-model", str(gpt2_folder), "--pairs", str(pairs), "--to", str(to), *FEW]
    assert app.dispatch(words) == 0
    return to


def test_it_prefers_the_chosen_and_says_so(scorer: Path) -> None:
    report = json.loads((scorer / "reward_model.json").read_text())
    assert (report["pairs"], report["held_out"], report["dropped"]) == (72, 8, 0)
    assert [row["epoch"] for row in report["epochs"]] == [0, 1, 2]
    assert report["accuracy"] == 1.0
    assert report["epochs"][-1]["held_out_loss"] < report["epochs"][0]["held_out_loss"]
    assert "100.0%" in (scorer / "README.md").read_text()


def test_reference_completions_score_0_on_average(scorer: Path, pairs: Path) -> None:
    rows = read_pairs(str(pairs))
    samples = Samples(
        [row.prompt for row in rows],
        [{}] * len(rows),
        torch.arange(len(rows)),
        texts=[row.chosen for row in rows],
    )
    scores = RewardModel(torch.device("cpu"), path=str(scorer)).score(samples)["reward_model"]
    # those of the training pairs are; the held-out eighth is of the same kind
    assert abs(float(scores.mean())) < 0.1 * float(scores.abs().max() + 1)
    worse = RewardModel(torch.device("cpu"), path=str(scorer)).score(
        Samples(samples.prompts, samples.metadata, samples.groups, texts=[" dull stuff."] * 80)
    )["reward_model"]
    assert (worse < scores).all()


def test_the_value_model_begins_from_it(scorer: Path, gpt2_folder: Path) -> None:
    model: Any = CausalLM(torch.device("cpu"), path=str(gpt2_folder), value_path=str(scorer))
    mean = json.loads((scorer / "reward_model.json").read_text())["reference_mean"]
    assert model.critic.mean == pytest.approx(mean)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--held-out", "1.5"], "--held-out: is 1.5"),
        (["--lr", "0"], "--lr: is 0"),
        (["--epochs", "0"], "--epochs: is 0"),
        (["--micro-batch", "0"], "--micro-batch: is 0"),
        (["--seed", "-1"], "--seed: is -1"),
    ],
)
def test_flags_out_of_range_are_errors(
    words: list[str], message: str, pairs: Path, tmp_path: Path
) -> None:
    given = ["reward-model", "zoo:tiny_gpt2", "--pairs", str(pairs), "--to", str(tmp_path / "to")]
    with pytest.raises(PlanError) as caught:
        app.dispatch([*given, *words])
    assert message in "\n".join(f"{p.key}: {p.message}" for p in caught.value.problems)


def test_nothing_is_overwritten(scorer: Path, pairs: Path) -> None:
    with pytest.raises(PlanError):
        app.dispatch(["reward-model", "x", "--pairs", str(pairs), "--to", str(scorer)])


@pytest.mark.parametrize("base", ["./nowhere", "zoo:nothing", "empty"])
def test_a_base_that_is_no_model_is_one_message(base: str, pairs: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    base = str(tmp_path / base) if base == "empty" else base
    to = tmp_path / "to"
    with pytest.raises(UserError):
        app.dispatch(["reward-model", base, "--pairs", str(pairs), "--to", str(to)])
    assert not (to / "config.json").exists()


def test_pairs_that_are_too_long_are_left_out(
    gpt2_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model has 64 positions, a byte each."""
    rows = [
        {"prompt": f"{i}" + "a" * (60 * (i % 2)), "chosen": " good", "rejected": " bad"}
        for i in range(100)
    ]
    file = tmp_path / "pairs.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    words = ["--pairs", str(file), "--to", str(tmp_path / "to")]
    assert app.dispatch(["reward-model", str(gpt2_folder), *words]) == 0
    assert "50 pairs have more than 64 tokens" in capsys.readouterr().out


def test_the_examples_score_counts_right_statements() -> None:
    correct = load_script(SCRIPT).correct
    truth = " good plot, bad cast, good music."
    texts = [truth, " good plot, good cast, good music.", "nothing", truth + " bad story."]
    assert correct(texts, [truth] * 4) == pytest.approx([1.0, 2 / 3, 0.0, 2 / 3])
    assert correct([truth.replace(".", ", bad story.")], [truth]) == [0.0]


SMALL = [
    *("hardware=cpu", "iterations=2", "prompts_per_iteration=16", "dynamics.length=16"),
    *("evaluation.prompts=8", "evaluation.preview_every=0", "micro_batch=16"),
]


@pytest.mark.slow
def test_the_whole_pipeline_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands of docs/guides/reward_models.md, small."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["summaries.py", "data", "--count", "100"])
    load_script(SCRIPT).main()
    gold = ["reward=function", f"reward.function={SCRIPT}:correct"]
    sft = ["model=tiny_gpt2", "algo=sft", "prompts=file", "prompts.path=data/demonstrations.jsonl"]
    assert app.dispatch([*sft, *gold, *SMALL, "run_dir=sft"]) == 0
    lines = [json.loads(line) for line in RunFolder(Path("sft")).metrics.read_text().splitlines()]
    losses = [line["loss/policy"] for line in lines if "loss/policy" in line]
    assert losses[-1] < losses[0]
    policy = str(RunFolder(Path("sft")).checkpoints / "step_000002")
    dpo = ["model=tiny_gpt2", "algo=dpo", "prompts=file", "prompts.path=data/pairs.jsonl"]
    dpo += [f"model.path={policy}", "optimizer.lr=1e-4", *gold, *SMALL, "group_size=2"]
    assert app.dispatch([*dpo, "run_dir=dpo"]) == 0
    assert {"correct"} <= Scores.load(RunFolder(Path("dpo")).evaluation(2)).means().keys()
    rm = ["reward-model", "sft", "--pairs", "data/pairs.jsonl", "--to", "rm", "--epochs", "1"]
    assert app.dispatch(rm) == 0
    ppo = [
        *("experiment=four_models", f"model.path={policy}", "model.value_path=rm"),
        *("reward.path=rm", "prompts.path=data/prompts.jsonl"),
        *("eval_rewards.of=[function]", f"eval_rewards.parts.function.function={SCRIPT}:correct"),
    ]
    assert app.dispatch([*ppo, *SMALL, "run_dir=ppo"]) == 0
    folder = RunFolder(Path("ppo"))
    config = yaml.safe_load(folder.config.read_text())
    assert config["algo"]["score_placement"] == "after_end"
    means = Scores.load(folder.evaluation(2)).means()
    assert {"reward_model", "function"} <= means.keys()


def test_presets_place_the_score_after_the_end() -> None:
    config = plan_from_words("experiment=trl_tldr").config
    algo, model = config["algo"], config["model"]
    assert (algo["score_placement"], algo["missing_end"]) == ("after_end", "penalty")
    assert algo["whiten_unbiased"] is True
    assert model["value_path"] == config["reward"]["path"]
    assert model["value_lr"] == config["optimizer"]["lr"] == 3e-6
    assert config["iterations"] * config["prompts_per_iteration"] == pytest.approx(1e6, rel=1e-3)


def saved(folder: Path, *rows: dict[str, Any], name: str = "pairs.jsonl") -> str:
    file = folder / name
    file.write_text("\n".join(json.dumps(row) for row in rows))
    return str(file)


ROW = {"prompt": "p", "chosen": " a", "rejected": " b"}


def test_the_chosen_one_is_the_reference_unless_there_is_one(tmp_path: Path) -> None:
    found = read_pairs(saved(tmp_path, ROW, {**ROW, "reference": " c", "more": 3}))
    assert found == [Pair("p", " a", " b", " a"), Pair("p", " a", " b", " c")]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "p", "chosen": " a"}, "pair 2: `rejected` must be a text.*prompt, chosen"),
        ({**ROW, "chosen": None}, "pair 2: `chosen` must be a text, and it is None"),
        ({**ROW, "chosen": " b "}, "pair 2: `chosen` and `rejected` are equal.*remove the line"),
        ({**ROW, "reference": []}, "pair 2: `reference` must be a text"),
        ({"chosen": "a", "rejected": "b"}, ":2: `prompt` is empty"),
    ],
)
def test_a_row_that_is_no_pair_is_named(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(PromptError, match=message):
        read_pairs(saved(tmp_path, ROW, row))


def test_an_empty_or_missing_file_or_one_of_another_kind_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match="empty"):
        read_pairs(saved(tmp_path))
    with pytest.raises(PromptError, match="there is no such file"):
        read_pairs(str(tmp_path / "none.jsonl"))
    with pytest.raises(PromptError, match="rows are read from"):
        read_pairs(saved(tmp_path, ROW, name="pairs.xlsx"))


SAID = [
    {"role": "user", "content": "Two plus two?"},
    {"role": "assistant", "content": "four"},
    {"role": "assistant", "content": "five"},
]
CONVERSATION = {"chosen": [SAID[0], SAID[1]], "rejected": [SAID[0], SAID[2]]}


@pytest.mark.parametrize("kind", ["csv", "parquet", "chats.parquet", "transcripts.jsonl"])
def test_pairs_as_people_keep_them(kind: str, tmp_path: Path) -> None:
    file = tmp_path / f"pairs.{kind}"
    prompt: Any = "Two plus two?"
    if kind == "csv":
        pd.DataFrame([{"prompt": prompt, "chosen": "four", "rejected": "five"}]).to_csv(file)
    elif kind == "parquet":
        pd.DataFrame([{"prompt": prompt, "chosen": "four", "rejected": "five"}]).to_parquet(file)
    elif kind == "chats.parquet":
        prompt = ChatText(SAID[:1])
        pd.DataFrame([{"prompt": "2+2", **CONVERSATION}]).to_parquet(file)
    else:
        prompt = "\n\nHuman: 2+2?\n\nAssistant:"
        file.write_text(json.dumps({"chosen": f"{prompt} four", "rejected": f"{prompt} five"}))
    (pair,) = read_pairs(str(file))
    assert (pair.prompt, pair.chosen.strip(), pair.rejected.strip()) == (prompt, "four", "five")


def test_a_chat_models_pair_is_what_its_template_writes() -> None:
    tokenizer, prompt = chat_tokenizer(), ChatText(SAID[:1])
    tokenizer.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m.role }} {{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant {% endif %}"
    )
    form = PromptFormat(tokenizer, text_role="auto")
    made = encode_pair(form, Pair(prompt, "four", "five", "four"))
    whole: Any = tokenizer.apply_chat_template(SAID[:2], tokenize=False)
    assert tokenizer.decode(made.chosen) + "\n" == whole
    assert made.chosen == made.reference
    (given,), (answer,) = form.prompt_ids([prompt]), form.completion_ids([prompt], ["five"])
    assert made.rejected == [*given, *answer]
    assert encode_pair(form, Pair(SAID[0]["content"], "four", "five", "four")) == made


def test_all_pairs_of_a_prompt_are_on_one_side() -> None:
    pairs = [Pair(f"p{i % 50}", f" {i}", " b", " c") for i in range(100)]
    training, held_out = split_pairs(pairs, 0.1)
    assert (len(training), len(held_out)) == (90, 10)
    assert not {p.prompt for p in training} & {p.prompt for p in held_out}


@pytest.mark.parametrize("share", [0.1, 0.99])
def test_too_few_pairs_are_an_error(share: float) -> None:
    pairs = [Pair(f"p{i}", " a", " b", " a") for i in range(10)]
    with pytest.raises(PromptError, match="--held-out .* of 10 different prompts leaves"):
        split_pairs(pairs, share)


PAIRS = [Pair(f"Film {i}:", " good.", " dull stuff.", " good.") for i in range(24)]


@pytest.fixture
def network(gpt2_folder: Path) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        made = GPT2ForSequenceClassification.from_pretrained(gpt2_folder, num_labels=1)
    return made.eval()


@pytest.fixture
def encoded(gpt2_folder: Path) -> list[EncodedPair]:
    tokenizer = AutoTokenizer.from_pretrained(gpt2_folder)
    form = PromptFormat(tokenizer, begin=tokenizer.eos_token)
    return [encode_pair(form, pair) for pair in PAIRS]


def test_golden_loss() -> None:
    """-log sigmoid(1) = 0.3133, -log sigmoid(0) = log 2, -log sigmoid(-2) = 2.1269."""
    found = bradley_terry(torch.tensor([1.5, 0.2, -1.0]), torch.tensor([0.5, 0.2, 1.0]))
    torch.testing.assert_close(found, torch.tensor([0.313262, 0.693147, 2.126928]))


def test_a_pair_begins_and_ends_as_the_policys_texts(encoded: list[EncodedPair]) -> None:
    end = 256
    assert encoded[0].chosen[0] == encoded[0].chosen[-1] == encoded[0].rejected[-1] == end
    assert end not in encoded[0].chosen[1:-1]
    assert encoded[0].longest == len(encoded[0].rejected)


def test_batches_and_padding_change_no_score(network: Any, encoded: list[EncodedPair]) -> None:
    texts = [ids for pair in encoded[:4] for ids in (pair.chosen, pair.rejected)]
    torch.testing.assert_close(
        scores_of(network, texts, 8), scores_of(network, texts, 1), atol=1e-5, rtol=1e-5
    )


def run(network: Any, encoded: list[EncodedPair], **options: Any) -> list[float]:
    return [*train(network, encoded, RewardModelOptions(**options))]


def test_it_learns_the_preference(network: Any, encoded: list[EncodedPair]) -> None:
    losses = run(network, encoded, epochs=4, lr=1e-3, batch=8, micro_batch=8)
    assert len(losses) == 4
    assert losses[-1] < losses[0]
    chosen, rejected = (
        scores_of(network, [getattr(p, name) for p in encoded], 8)
        for name in ("chosen", "rejected")
    )
    assert (chosen > rejected).float().mean() > 0.9


def test_micro_batches_change_nothing_and_the_seed_does(
    network: Any, encoded: list[EncodedPair]
) -> None:
    begun = {k: v.clone() for k, v in network.state_dict().items()}

    def losses(**options: Any) -> list[float]:
        network.load_state_dict(begun)
        return run(network, encoded, epochs=2, lr=1e-4, batch=8, **options)

    whole = losses(micro_batch=8)
    assert losses(micro_batch=3) == pytest.approx(whole, abs=1e-3)
    assert losses(micro_batch=8) == whole
    assert losses(micro_batch=8, seed=1) != whole


def test_divergence_is_an_error(network: Any, encoded: list[EncodedPair]) -> None:
    with torch.no_grad():
        network.score.weight.fill_(torch.nan)
    with pytest.raises(TrainingError, match="smaller --lr"):
        run(network, encoded)
