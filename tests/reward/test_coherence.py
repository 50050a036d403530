import math

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BertConfig,
    BertLMHeadModel,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
)

from rlfactory.model.pipelines.local_models import zoo_path
from rlfactory.reward.base import RewardError, Samples, check_scores
from rlfactory.reward.coherence import Coherence, ScoredTokens

CPU = torch.device("cpu")
PROMPTS = ["This movie was really", "The acting in this film", "", "I have to say "]
TEXTS = [" good.", " is bad and the story is worse.", "It was", "that the plot\nis"]


@pytest.fixture(scope="module")
def reward():
    return Coherence(CPU)


def score(reward, texts=TEXTS, prompts=PROMPTS):
    samples = Samples(prompts, [{}] * len(texts), torch.arange(len(texts)), texts=texts)
    scores = reward.score(samples)
    check_scores(reward, scores, len(texts))
    return scores["coherence"]


def by_hand(prompt, text):
    """Sum and number of a completion's log-probabilities, a token at a time."""
    folder = zoo_path("tiny_gpt2")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = [tokenizer.eos_token_id, *tokenizer(prompt).input_ids, *tokenizer(text).input_ids]
    first = 1 + len(tokenizer(prompt).input_ids)
    with torch.no_grad():
        steps = [
            model(torch.tensor([ids[:i]])).logits[0, -1].double().log_softmax(0)[ids[i]]
            for i in range(first, len(ids))
        ]
    return torch.stack(steps).sum().float(), len(steps)


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_it_is_the_likelihood_a_token_at_a_time(batch_size):
    pairs = [*zip(PROMPTS[:3], TEXTS[:3], strict=True)]
    sums, counts = zip(*[by_hand(*pair) for pair in pairs], strict=True)
    total = Coherence(CPU, over_tokens="sum", batch_size=batch_size)
    found = score(total, TEXTS[:3], PROMPTS[:3])
    torch.testing.assert_close(found, torch.stack(sums), atol=1e-3, rtol=1e-4)
    mean = Coherence(CPU, batch_size=batch_size)
    expected = torch.stack(sums) / torch.tensor(counts)
    torch.testing.assert_close(score(mean, TEXTS[:3], PROMPTS[:3]), expected, atol=1e-4, rtol=1e-4)


def test_the_chain_rule():
    total = Coherence(CPU, over_tokens="sum")
    whole, head, tail = score(
        total, [" was good and bad", " was", " good and bad"], ["It", "It", "It was"]
    )
    torch.testing.assert_close(whole, head + tail, atol=1e-4, rtol=1e-5)


def test_language_beats_noise_and_order_counts(reward):
    prompt = "This movie was"
    plain, shuffled, noise = score(
        reward,
        [
            " one of the best films I have seen",
            " films best seen of I the one have",
            " xq zzk vvj qq",
        ],
        [prompt] * 3,
    )
    assert plain > shuffled + 1 > noise


def test_the_prompt_is_read_unless_it_is_not(reward):
    alone = Coherence(CPU, judge="completion")
    assert torch.equal(score(alone, [" good"], ["It was"]), score(alone, [" good"], ["x"]))
    torch.testing.assert_close(
        score(alone, [" good"], ["It was"]), score(reward, [" good"], [""]), atol=1e-5, rtol=0
    )
    assert score(reward, [" good"], ["It was"]) != score(reward, [" good"], ["x"])


def test_nothing_has_no_score(reward):
    assert score(reward, ["", " a", ""], ["It", "It", ""]).isnan().tolist() == [True, False, True]


def test_a_token_on_the_border_is_the_completions(reward):
    joined = score(reward, [" movie"], [""])
    torch.testing.assert_close(score(reward, ["ie"], [" mov"]), joined, atol=1e-5, rtol=0)
    # a space that ends a prompt belongs to the word that follows
    spaced = score(reward, ["film"], ["The "])
    torch.testing.assert_close(spaced, score(reward, [" film"], ["The"]), atol=1e-5, rtol=0)


def rows(reward, prompt, text):
    return reward._rows(Samples([prompt], [{}], torch.arange(1), texts=[text]))[0]


@pytest.mark.parametrize("most", [2, 5, 9])
def test_what_is_too_long_loses_its_beginning_then_its_end(reward, most):
    short = Coherence(CPU, max_tokens=most)
    whole = rows(reward, "It was a good", " film I say")  # each word a token, one to begin
    assert [len(whole.ids), whole.count] == [8, 3]
    cut = rows(short, "It was a good", " film I say")
    judged = min(3, most - 1)
    assert cut == ScoredTokens(
        whole.ids[5 - (min(most, 8) - judged) : 5 + judged], min(most, 8) - judged
    )
    assert score(short).isfinite().all()


def save_gpt2(folder, *, special=True):
    words = {"<end>": 0, "good": 1, "bad": 2}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="bad"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    end = {"eos_token": "<end>"} if special else {}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **end).save_pretrained(folder)
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=3, n_positions=8, n_embd=8, n_layer=1, n_head=1, eos_token_id=0)
    model = GPT2LMHeadModel(config)
    model.save_pretrained(folder)
    return model


def test_a_uniform_model(tmp_path):
    model = save_gpt2(tmp_path)
    for parameter in model.parameters():
        parameter.data.zero_()
    model.save_pretrained(tmp_path)
    for over, times in (("mean", 1), ("sum", 3)):
        reward = Coherence(CPU, path=str(tmp_path), over_tokens=over)
        found = score(reward, [" good bad bad"], ["good"])
        assert found.item() == pytest.approx(-times * math.log(3))


def test_the_end_of_a_text_is_a_beginning_too(tmp_path):
    save_gpt2(tmp_path)
    assert rows(Coherence(CPU, path=str(tmp_path)), "", "good bad") == ScoredTokens([0, 1, 2], 1)


def test_a_tokenizer_without_a_token_to_begin_with(tmp_path):
    save_gpt2(tmp_path, special=False)
    reward = Coherence(CPU, path=str(tmp_path))
    assert rows(reward, "", "good bad bad").count == 2
    assert rows(reward, "good", " bad").count == 1
    assert score(reward, ["good", " bad"], ["", "good"]).isnan().tolist() == [True, False]


def test_float16_is_near(reward):
    half = Coherence(CPU, dtype="float16")
    torch.testing.assert_close(score(half), score(reward), atol=0.02, rtol=0.02)


def test_a_model_that_reads_ahead_is_refused(tmp_path):
    save_gpt2(tmp_path)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = BertConfig(vocab_size=3, intermediate_size=8, initializer_range=0.2, **sizes)
    torch.manual_seed(0)
    BertLMHeadModel(config).save_pretrained(tmp_path)
    with pytest.raises(RewardError, match=rf"^reward\.path={tmp_path} .*it is not causal"):
        Coherence(CPU, path=str(tmp_path))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/nonesuch", "no folder"),
        ("zoo:sentiment", r"AutoModelForCausalLM\.$"),
        ("zoo:nonesuch", "does not ship"),
    ],
)
def test_a_path_that_leads_to_none(path, message):
    with pytest.raises(RewardError, match=rf"^reward\.path={path} could not be .*{message}"):
        Coherence(CPU, path=path)


def test_one_token_is_no_room():
    with pytest.raises(RewardError, match=r"reward\.max_tokens=1: "):
        Coherence(CPU, max_tokens=1)
