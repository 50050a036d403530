"""Rules on prompts that lie in files."""

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from rlfactory.config.checks.data import require_metadata, require_prompt_feature
from rlfactory.config.checks.prompt_files import (
    known_rows,
    require_readable_prompts,
    require_splits,
    undownloaded_prompts,
)
from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError

OF_FILES: dict[str, Any] = {"prompts": {"prompt_files": ("path", "eval_path")}}
CHAT = '{"prompt": [{"role": "bot", "content": "hi"}]}'
OPEN = '{"prompt": "a sign that says \\"Open\\""}\n'


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.txt").write_text("a cat\n")
    (tmp_path / "rows.csv").write_text("text,label\na cat,1\n")
    (tmp_path / "gaps.csv").write_text("prompt,n\na,1\n,2\n")
    (tmp_path / "ids.csv").write_text("id,question,a\n1,two and two?,b\n")
    (tmp_path / "odd.csv").write_text("n,my question\n1,two and two?\n")
    (tmp_path / "mine.doc").write_text("a cat")
    (tmp_path / "rows.parquet").write_text("no")
    (tmp_path / "chat.jsonl").write_text(CHAT)
    (tmp_path / "signs.jsonl").write_text(OPEN)
    (tmp_path / "mixed.jsonl").write_text(OPEN + '{"prompt": "a cat"}\n')


@pytest.mark.parametrize(
    ("prompts", "key", "said", "fix"),
    [
        ({"path": "mien.txt"}, "path", "Did you mean mine.txt", "prompts.path=mine.txt"),
        ({"path": "owner/name"}, "path", "there is no file", "prompts=datasets"),
        ({"path": "."}, "path", "is a folder", "prompts=datasets"),
        ({"path": "rows.parquet"}, "path", "no file of texts", "prompts=datasets"),
        ({"path": "mine.doc"}, "path", "not from '.doc'", ""),
        ({"path": "chat.jsonl"}, "path", "role 'bot'; allowed are", ""),
        ({"path": "rows.csv"}, "column", "it has text, label", "prompts.column=text"),
        ({"eval_path": "mien.txt"}, "eval_path", "mine.txt?", "prompts.eval_path=mine.txt"),
        ({"eval_path": "no.txt"}, "eval_path", "there is no no.txt; allowed are .txt", ""),
        ({"path": "gaps.csv"}, "path", "gaps.csv:3: `prompt` is empty", None),
        ({"path": "gaps.csv", "skip_empty": []}, "path", "is empty", "prompts.skip_empty=[prompt]"),
    ],
)
def test_files(prompts: dict[str, str], key: str, said: str, fix: str) -> None:
    (problem,) = require_readable_prompts({"prompts": prompts}, OF_FILES)
    assert problem.key == f"prompts.{key}"
    assert said in problem.message
    assert problem.fix == (fix or "")


@pytest.mark.parametrize(
    ("path", "column", "key", "said", "fix"),
    [
        ("zzzz", "text", "path", "there is no zzzz", ""),
        ("row.csv", "text", "path", "Did you mean rows.csv", "prompts.path=rows.csv"),
        ("/no/where", "text", "path", "there is no /no/where", ""),
        ("folder/no/where", "text", "path", "there is no folder/no/where", ""),
        ("ids.csv", "prompt", "column", "it has id, question, a", "prompts.column=question"),
        ("odd.csv", "prompt", "column", "it has n, my question", "prompts.column='my question'"),
        ("rows.parquet", "prompt", "path", "is no Parquet file", ""),
        ("rows.csv", "prompt", "column", "it has text, label", "prompts.column=text"),
        ("rows.csv", "labl", "column", "it has text, label", "prompts.column=text"),
        ("chat.jsonl", "prompt", "path", "role 'bot'; allowed are", ""),
    ],
)
def test_data_sets(path: str, column: str, key: str, said: str, fix: str) -> None:
    Path("folder").mkdir()
    config = {"prompts": {"path": path, "column": column, "split": "train"}}
    (problem,) = require_readable_prompts(config, {})
    assert problem.key == f"prompts.{key}"
    assert said in problem.message
    assert problem.fix == fix


@pytest.mark.parametrize(
    "path", ["owner/name", "a/name/part", "rows.csv", "hpdv2/train.json", "folder", 3]
)
def test_data_sets_that_may_be_right(path: object) -> None:
    Path("folder").mkdir()
    Path("folder/rows.csv").write_text("text\na\n")
    config = {"prompts": {"path": path, "column": "text", "split": "train"}}
    assert not [*require_readable_prompts(config, {})]
    assert not [*require_splits(config, {})]


@pytest.mark.parametrize(
    ("prompts", "said", "fix"),
    [
        ({"eval_split": "test"}, "rows.csv has no splits", "prompts.eval_split=null"),
        ({"split": "test"}, "prompts.eval_path=FILE", "prompts.split=train"),
        ({"path": "both", "eval_split": "tset"}, "train, test", "prompts.eval_split=test"),
        ({"eval_path": "both", "eval_split": "tset"}, "train, test", "prompts.eval_split=test"),
        ({"eval_path": "both", "eval_split": "test"}, "", ""),
    ],
)
def test_splits_that_are_not_there(
    prompts: dict[str, str], said: str, fix: str, tmp_path: Path
) -> None:
    (tmp_path / "both").mkdir()
    (tmp_path / "both" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    found = [*require_splits({"prompts": {"path": "rows.csv", "split": "train"} | prompts}, {})]
    assert [problem.fix for problem in found] == ([fix] if fix else [])
    assert all(said in problem.message for problem in found)


def test_published_prompts_that_are_not_here(tmp_path: Path) -> None:
    config = {"prompts": {"path": "hpdv2/train.json"}}
    (problem,) = undownloaded_prompts(config)
    assert "hf download ymhao/HPDv2 train.json --repo-type dataset" in problem.message
    (tmp_path / "hpdv2").mkdir()
    (tmp_path / "hpdv2" / "train.json").write_text("[]")
    assert not [*undownloaded_prompts(config)]


@pytest.mark.parametrize(
    ("prompts", "traits", "columns"),
    [
        ({"path": "mine.txt"}, OF_FILES["prompts"], ("prompt",)),
        ({"path": "rows.csv", "column": "text", "split": "train"}, {}, ("text", "label")),
        ({"path": "chat.jsonl"}, OF_FILES["prompts"], None),
        ({"path": "rows.csv"}, {}, None),
        ({"path": "owner/name", "column": "text"}, {}, None),
        ({}, {}, None),
    ],
)
def test_what_is_known_of_the_prompts(
    prompts: dict[str, str], traits: dict[str, Any], columns: tuple[str, ...] | None
) -> None:
    rows = known_rows({"prompts": prompts}, {"prompts": traits})
    assert (rows and rows.columns) == columns


def quoting(prompts: dict[str, Any], **traits: Any) -> list[tuple[str, str]]:
    """The problems of a reward that reads a quoted word."""
    config = {"prompts": prompts, "reward": {}, "eval_rewards": {}}
    reward = {"media": "images", "prompt_feature": "quoted_word"}
    kinds = {"reward": reward, "prompts": traits, "model": {"media": "images"}}
    return [(p.message, p.fix) for p in require_prompt_feature(config, kinds)]


def test_a_quoted_word_in_each_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.delenv("TRANSFORMERS_OFFLINE", raising=False)
    files = OF_FILES["prompts"]
    assert quoting({"path": "signs.jsonl"}, **files) == []
    assert quoting({}, features=("quoted_word",)) == []
    assert quoting({}, features=None) == []
    ((_, fix),) = quoting({}, features=())
    assert fix == "prompts=signs"
    ((message, fix),) = quoting({"path": "mixed.jsonl"}, **files)
    assert "the prompt 'a cat' has no text in double quotes" in message
    assert fix == "reward=clipscore", "the user's own prompts stay"


@pytest.mark.parametrize(
    ("media", "offline", "fix"),
    [
        ("images", "0", "reward=clipscore"),
        ("images", "1", "reward=compressibility"),
        ("texts", "0", "reward=sentiment"),
    ],
)
def test_a_reward_gives_way_to_the_users_prompts(
    media: str, offline: str, fix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", offline)
    config = {"prompts": {"path": "mine.txt"}, "reward": {}, "eval_rewards": {}}
    own = {"media": media, "metadata": ("include",)}
    (problem,) = require_metadata(config, {"reward": own, "model": {"media": media}} | OF_FILES)
    assert problem.key == "reward"
    assert problem.fix == fix


def test_a_reward_of_evaluations_alone_is_left_out() -> None:
    config = {
        "prompts": {"path": "mine.txt"},
        "reward": {},
        "eval_rewards": {"of": ["a", "b"], "parts": {"a": {}, "b": {}}},
    }
    traits = {"reward": {}, "eval_rewards.parts.a": {"metadata": ("include",)}} | OF_FILES
    (problem,) = require_metadata(config, traits | {"model": {"media": "images"}})
    assert (problem.key, problem.fix) == ("eval_rewards.parts.a", "eval_rewards.of=[b]")


KONTEXT = (
    *("model=flux_kontext", "prompts=file", "prompts.path=mine.jsonl", "reward=compressibility"),
    "recipe=none",
)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (64, 64)).save(tmp_path / "square.png")
    Image.new("RGB", (64, 32)).save(tmp_path / "wide.png")
    (tmp_path / "text.png").write_text("no picture")


def write(*rows: object) -> None:
    Path("mine.jsonl").write_text("\n".join(json.dumps(row) for row in rows))


def told(*words: str) -> list[tuple[str, str, str]]:
    try:
        plan_from_words(*words)
    except PlanError as error:
        return [(problem.key, problem.message, problem.fix) for problem in error.problems]
    return []


SQUARE: dict[str, Any] = {"prompt": "a", "image": "square.png"}


@pytest.mark.parametrize(
    ("row", "said", "fix"),
    [
        ({"image": "none.png"}, "mine.jsonl, prompt 2: there is no picture", ""),
        ({"image": "text.png"}, "text.png can't be read as a picture", ""),
        ({"image": 3}, "a picture is the path of a file, not 3", ""),
        ({}, "prompt 2: has no picture under image", ""),
        (
            {"image": "wide.png"},
            "wide.png has 32 x 64 pixels, and pictures are resized to model.size, 512 x 512",
            "model.size=[368,720]",
        ),
    ],
    ids=str,
)
def test_pictures_of_a_file(row: dict[str, Any], said: str, fix: str) -> None:
    write(SQUARE, {"prompt": "b", **row})
    ((key, message, given),) = told(*KONTEXT)
    assert key == "prompts.path"
    assert said in message
    assert given == fix


def test_what_the_fix_says_works() -> None:
    write({"prompt": "b", "image": "wide.png"})
    assert told(*KONTEXT, "model.size=[368,720]") == []
    write(SQUARE)
    assert told(*KONTEXT) == []


def test_prompts_without_pictures() -> None:
    write({"prompt": "b"})
    messages = [message for _, message, _ in told(*KONTEXT)]
    assert any("have no pictures, and this model edits pictures" in text for text in messages)
    ((key, message, fix),) = told("model=flux_kontext", "prompts=preferences", "reward=pickscore")
    assert (key, fix) == ("prompts", "prompts=edits")
    assert "have no pictures" in message


def test_pictures_for_a_model_that_takes_none() -> None:
    write(SQUARE)
    words = ("model=flux", *KONTEXT[1:])
    ((key, message, fix),) = told(*words)
    assert (key, fix) == ("prompts", "prompts.image_column=null")
    assert "this model takes none; model=flux_kontext does" in message
    assert told(*words, fix) == []
    ((key, _, fix),) = told("model=tiny_sd3", "prompts=edits")
    assert (key, fix) == ("prompts", "model=flux_kontext")
