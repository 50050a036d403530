"""What functions and rewards of strangers return: scores, or one line that says what came."""

import runpy

import pytest
import torch
from cases import cases, check, python_cases

import rlfactory as rl
from rlfactory.prompts.ops.chat import ChatText
from rlfactory.reward.base import Reward, RewardError, Samples, score_checked
from rlfactory.reward.function import Function
from rlfactory.reward.image_function import ImageFunction


def samples():
    return Samples(
        prompts=["a", "b", "c"],
        metadata=[{}, {}, {}],
        groups=torch.arange(3),
        images=torch.zeros(3, 3, 4, 4, dtype=torch.uint8),
        texts=["x", "y", "z"],
    )


def reward_of(case):
    """A `Reward` whose score is what the case's function returns."""

    class Own(Reward):
        media, main = "texts", "scored"

        def score(self, _):
            return {"scored": case["scored"]()}

    return Own()


@pytest.mark.parametrize("path", cases("rewards"))
def test_typed_right_or_one_line(path, tmp_path, here):
    check(path, tmp_path, here)


def test_the_short_form_is_what_python_hands_over(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rewards.py").write_text("def right(completions):\n    return [1.0]\n")
    given = runpy.run_path("rewards.py")["right"]
    words = ("reward=[rewards.py:right,length]", "reward.weights=[1,0.1]")
    typed = rl.plan("model=tiny_gpt2", *words).config["reward"]
    made = rl.plan("model=tiny_gpt2", reward=[(given, 1.0), ("length", 0.1)]).config["reward"]
    named = rl.plan("model=tiny_gpt2", reward=[("rewards.py:right", 1), ("length", 0.1)])
    part = {"function": "rewards.py:right"}
    assert typed["of"] == made["of"] == ["right", "length"]
    assert typed["weights"] == made["weights"] == {"right": 1.0, "length": 0.1}
    assert typed["parts"]["right"]["_target_"] == made["parts"]["right"]["_target_"]
    assert typed["parts"]["right"]["function"].endswith(part["function"])
    assert named.config["reward"]["weights"] == typed["weights"]
    assert named.config["reward"]["parts"]["length"] == typed["parts"]["length"]


@pytest.mark.parametrize("path", python_cases("rewards"))
@pytest.mark.parametrize("way", ["texts", "images", "class"])
def test_right_or_one_line(path, way):
    case = runpy.run_path(str(path))
    is_mapping = isinstance(case["scored"](), dict) or "info" in path.stem
    if way == "class" and is_mapping:
        return  # forms of functions alone
    made = {"texts": Function, "images": ImageFunction}
    reward = made[way](function=f"{path}:scored") if way in made else reward_of(case)
    if "SAYS" in case:
        with pytest.raises(RewardError) as raised:
            score_checked(reward, samples())
        said = str(raised.value)
        assert all(part in said for part in case["SAYS"].split("; ")), said
        assert "\n" not in said
        return
    found = score_checked(reward, samples())["scored"]
    assert found.dtype == torch.float32
    assert not found.requires_grad
    assert [None if v != v else v for v in found.tolist()] == case["EXPECTED"]


def test_conversations_are_as_in_trl(tmp_path):
    """The form of open-r1's rewards: the last message is the question, the first the answer."""
    (tmp_path / "rewards.py").write_text(
        "def right(prompts, completions, answer, **columns):\n"
        "    questions = [prompt[-1]['content'] for prompt in prompts]\n"
        "    contents = [completion[0]['content'] for completion in completions]\n"
        "    assert questions == ['1 + 1?', '1 + 2?'] and columns['level'] == [1, None]\n"
        "    return [float(c == a) for c, a in zip(contents, answer)]\n"
    )
    system = {"role": "system", "content": "Count."}
    prompts = [ChatText([system, {"role": "user", "content": q}]) for q in ("1 + 1?", "1 + 2?")]
    metadata = [{"answer": "2", "level": 1}, {"answer": "3"}]
    asked = Samples(prompts, metadata, torch.arange(2), texts=["2", "4"])
    reward = Function(function=f"{tmp_path / 'rewards.py'}:right")
    assert reward.score(asked)["right"].tolist() == [1, 0]
