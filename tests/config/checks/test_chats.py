"""Rules on conversations."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from rlfactory.config import checks
from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError

WEIGHTS = Path(checks.__file__).parents[2] / "model" / "zoo" / "weights"
WORDS = ("model=tiny_gpt2", "prompts=file", "prompts.path=mine.jsonl")
ASKED = [{"role": "user", "content": "2 + 2?"}]
ANSWERED = [*ASKED, {"role": "assistant", "content": "4"}]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(*rows: object) -> None:
    Path("mine.jsonl").write_text("\n".join(json.dumps(row) for row in rows))


def told(*words: str) -> list[tuple[str, str, str]]:
    try:
        plan_from_words(*words)
    except PlanError as error:
        return [(problem.key, problem.message, problem.fix) for problem in error.problems]
    return []


@pytest.mark.parametrize("row", [{"prompt": ASKED}, {"messages": ANSWERED}], ids=str)
def test_messages_want_a_template_and_the_fix_works(row: dict[str, Any]) -> None:
    write(row)
    ((key, message, fix),) = told(*WORDS)
    assert key == "model.chat_template"
    assert "zoo:tiny_gpt2 has no chat template; prompts are lists of messages" in message
    assert fix == "model.chat_template=plain"
    assert told(*WORDS, fix) == []
    ((_, message, other),) = told(*WORDS, "model.chat_template=none")
    assert "is none" in message
    assert other == fix


def test_a_template_that_is_not_there() -> None:
    Path("chat.jinja").write_text("{{ messages }}")
    ((key, message, fix),) = told("model=tiny_gpt2", "model.chat_template=chats.jinja")
    assert (key, fix) == ("model.chat_template", "model.chat_template=chat.jinja")
    assert "there is no file chats.jinja; allowed are a Jinja file, auto, plain, none" in message
    assert told("model=tiny_gpt2", fix) == []


def test_a_template_of_the_models_own_is_found(tmp_path: Path) -> None:
    write({"prompt": ASKED})
    folder = tmp_path / "chat"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "gpt2", "n_positions": 64}')
    (folder / "tokenizer_config.json").write_text("{}")
    shutil.copy(WEIGHTS / "tiny_gpt2" / "model.safetensors", folder)
    words = (*WORDS, "model.path=chat", "dynamics.length=16")
    assert [key for key, *_ in told(*words)] == ["model.chat_template"]
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert told(*words) == []
    assert "has a chat template" not in plan_from_words(*words).table()
    write({"prompt": "2 + 2?"})
    assert "has a chat template" in plan_from_words(*words).table()
    assert "has a chat template" not in plan_from_words(*words, "model.text_role=user").table()


def test_a_system_prompt_is_for_conversations() -> None:
    words = ("model=tiny_gpt2", "model.system_prompt=Rhyme", "model.chat_template=plain")
    ((key, _, fix),) = told(*words)
    assert (key, fix) == ("model.system_prompt", "model.text_role=user")
    assert told(*words, fix) == []
    write({"prompt": ASKED})
    assert told(*WORDS, *words[1:]) == []


def test_of_a_conversation_the_answer_is_learned() -> None:
    write({"messages": ANSWERED})
    words = (*WORDS, "model.chat_template=plain", "algo=sft", "prompts_per_iteration=4")
    assert told(*words) == []
    for wrong in ("algo.train_on=text", "algo.column=null"):
        ((key, message, fix),) = told(*words, wrong)
        assert key == wrong.partition("=")[0]
        assert "of a conversation the last answer is learned" in message
        assert told(*words, fix) == []
    write({"prompt": ASKED, "completion": ANSWERED[1:]})
    assert told(*words) == []
    write({"prompt": ASKED, "completion": ANSWERED})
    ((key, message, _),) = told(*words)
    assert key == "algo.column"
    assert "must be a text" in message


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"prompt": [{"content": "hi"}]}, ":1: `prompt` message 0 must have `role` and"),
        ({"prompt": [{"role": "bot", "content": "hi"}]}, "role 'bot'; allowed are system,"),
        ({"messages": [{"role": "user", "content": 3}]}, "`content` must be a text; it is 3"),
        ({"messages": []}, ":1: `messages` is empty, []"),
        ({"messages": ANSWERED[1:]}, "must have a user's message before the answer"),
        ({"chosen": "a", "rejected": "b"}, "begin differently"),
    ],
    ids=str,
)
def test_wrong_messages(row: dict[str, Any], said: str) -> None:
    write(row)
    ((key, message, _),) = told(*WORDS)
    assert key == "prompts.path"
    assert said in message


def test_messages_of_a_data_set() -> None:
    write({"source": "x", "messages": ANSWERED})
    words = ("model=tiny_gpt2", "prompts=datasets", "prompts.path=mine.jsonl")
    ((key, _, template),) = told(*words)
    assert (key, template) == ("model.chat_template", "model.chat_template=plain")
    assert told(*words, template, "algo=sft", "prompts_per_iteration=4") == []
    write({"messages": [{"role": "bot", "content": ""}]})
    ((key, message, _),) = told(*words)
    assert key == "prompts.path"
    assert "role 'bot'" in message


def test_image_models_take_no_messages() -> None:
    write({"prompt": ASKED})
    problems = told("model=tiny_sd3", "prompts=file", "prompts.path=mine.jsonl", "reward=length")
    assert "prompts" in [key for key, *_ in problems]


def test_a_response_leaves_room() -> None:
    ((key, message, fix),) = told("model=tiny_gpt2", "dynamics.length=5000")
    assert key == "dynamics.length"
    assert "at most" in message
    assert told("model=tiny_gpt2", fix) == []


@pytest.mark.parametrize("algo", ["ppo", "sft"])
def test_a_long_prompt_is_told_before_a_run(algo: str) -> None:
    long = "The film was " * (100 if algo == "ppo" else 200)
    row = {"completion": " good"}
    write({"prompt": "short", **row}, {"prompt": long, **row}, {"prompt": "other", **row})
    words = (*WORDS, f"algo={algo}", "prompts_per_iteration=4", "updates_per_iteration=1")
    words = (*words, "dynamics.length=48", "model.max_prompt_length=null")
    ((key, message, fix),) = told(*words)
    assert key == "model.long_prompts"
    assert re.search(r"'The film was .*'\.\.\. has \d+ tokens", message)
    assert told(*words, fix) == told(*words, "model.long_prompts=cut") == []
    if algo == "sft":  # whole texts are cut
        assert told(*words, "algo.train_on=text") == []
    write({"prompt": "short", **row}, {"prompt": long[:100], **row}, {"prompt": "other", **row})
    assert told(*words) == []
    (found,) = told(*words, "model.max_prompt_length=8")
    assert found[0] == "model.long_prompts"


def test_a_stop_text_of_several_tokens_is_told_before_a_run() -> None:
    words = ("model=tiny_gpt2", r"dynamics.stop=[.,\n\nThe]")
    assert told(*words) == []
    ((key, message, fix),) = told(*words, "dynamics.stop_match=token")
    assert key == "dynamics.stop_match"
    assert re.search(r"'\\n\\nThe' is \d tokens of ", message)
    assert told(*words, fix) == []
    assert told("model=tiny_gpt2", "dynamics.stop=[.]", "dynamics.stop_match=token") == []


@pytest.mark.parametrize("more", [[], ["algo.column=null"]])
def test_whole_texts_of_a_chat_model_are_no_users_messages(more: list[str]) -> None:
    """Both words are suggested at once: one alone is refused for the other."""
    write({"text": "one"}, {"text": "two"})
    words = (*WORDS, "model.text_role=user", "model.chat_template=plain", "algo=sft")
    words = (*words, "prompts_per_iteration=2", "updates_per_iteration=1")
    with pytest.raises(PlanError) as refused:
        plan_from_words(*words, *more)
    (problem,) = refused.value.problems
    assert problem.instead == ("algo.column=null", "model.text_role=none")
    assert told(*words, *problem.instead) == []


def test_an_answer_is_that_of_a_completion() -> None:
    write(
        {"prompt": "2 + 2 =", "completion": "<think>four</think> 4"},
        {"prompt": "1 + 1 =", "completion": " 2"},
    )
    words = (*WORDS, "algo=sft", "algo.train_on=answer")
    words = (*words, "prompts_per_iteration=2", "updates_per_iteration=1")
    assert told(*words) == []
    assert "algo.train_on" in {key for key, _, _ in told(*words, "algo.column=null")}
