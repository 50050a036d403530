from pathlib import Path

import datasets
import pandas as pd
import pytest
from PIL import Image

from rlfactory.algo.ops.completions import given_image
from rlfactory.config.overrides import plan_from_words
from rlfactory.prompts.base import Prompt, PromptError
from rlfactory.prompts.hub import HubPrompts
from rlfactory.prompts.ops.chat import ChatText
from rlfactory.prompts.ops.in_memory import InMemoryPrompts
from rlfactory.train.build import instantiate_group

ROWS = {"caption": [f"a {i}" for i in range(20)], "tag": ["x", "y"] * 10}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    rows = datasets.Dataset.from_dict(ROWS)
    rows.to_parquet(folder / "rows.parquet")
    rows.to_json(folder / "rows.jsonl")
    rows.save_to_disk(folder / "one")
    datasets.DatasetDict(train=rows, test=rows.select([3, 4])).save_to_disk(folder / "both")
    (folder / "files").mkdir()
    rows.to_parquet(folder / "files" / "train.parquet")
    rows.select([3, 4]).to_parquet(folder / "files" / "test.parquet")
    datasets.Dataset.from_dict({"caption": [1, 2]}).to_parquet(folder / "numbers.parquet")
    return folder


@pytest.mark.parametrize("name", ["rows.parquet", "rows.jsonl", "one", "both", "files"])
def test_every_way_of_saving_gives_the_same_prompts(saved, name):
    source = HubPrompts(path=str(saved / name), column="caption")
    assert source.held_out(2) == [Prompt("a 0", {"tag": "x"}), Prompt("a 10", {"tag": "x"})]
    first, again, other = (source.draw(8, seed=0, iteration=i) for i in (0, 0, 1))
    assert first == again
    assert not {p.text for p in first} & {p.text for p in other}


@pytest.mark.parametrize("name", ["both", "files"])
def test_a_split_for_evaluation(saved, name):
    source = HubPrompts(path=str(saved / name), column="caption", eval_split="test")
    assert [p.text for p in source.held_out(9)] == ["a 3", "a 4"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "both", "column": "text"}, "no column 'text'; there are caption, tag"),
        ({"path": "both", "column": "caption", "split": "dev"}, "split 'dev'"),
        ({"path": "files", "column": "caption", "eval_split": "dev"}, "split 'dev'"),
        ({"path": "gone/nowhere/at all", "column": "caption"}, "cannot load"),
    ],
)
def test_what_is_not_there_is_named(saved, monkeypatch, options, message):
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    with pytest.raises(PromptError, match=message):
        HubPrompts(**options | {"path": str(saved / options["path"])})


def test_a_part_of_a_hub_id(monkeypatch):
    def load(name, part=None, *, split):
        if part is None:
            raise ValueError("Config name is missing.\nPlease pick one of: ['main', 'socratic']")
        return datasets.Dataset.from_dict({"prompt": [f"{name} {part} {split}"]})

    monkeypatch.setattr(datasets, "load_dataset", load)
    with pytest.raises(PromptError, match=r"\['main', 'socratic'\]; type prompts.path=a/b/PART"):
        HubPrompts(path="a/b")
    assert HubPrompts(path="a/b/main").texts() == ["a/b main train"]


def test_a_column_that_is_no_text(saved):
    with pytest.raises(PromptError, match="row 1: `caption` must be a text or a list of.*it is 1"):
        HubPrompts(path=str(saved / "numbers.parquet"), column="caption")


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_column_of_messages(tmp_path, kind):
    answered = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]
    rows = datasets.Dataset.from_list([{"messages": answered, "answer": 4}])
    path = str(tmp_path / f"rows.{kind}")
    rows.to_parquet(path) if kind == "parquet" else rows.to_json(path)
    source = HubPrompts(path=path, column="messages")
    (prompt,) = source.known()
    assert source.texts() == [prompt.text]
    assert prompt.text == ChatText(answered[:1])
    assert prompt.metadata == {"completion": "4", "answer": 4, "messages": answered[:1]}


CALLS = [
    {
        "messages": [
            {"role": "user", "content": "How is it there?"},
            {"role": "assistant", "tool_calls": [{"function": {"name": "w", "arguments": given}}]},
        ],
        "tools": [{"name": "w", "parameters": {"properties": {key: {"type": "string"}}}}],
    }
    for key, given in [("city", {"city": "Rome"}), ("zone", {"zone": "CET"})]
]


@pytest.mark.parametrize("form", ["datasets", "pandas", "file"])
def test_messages_and_tools_have_no_keys_of_other_rows(tmp_path, form):
    rows = datasets.Dataset.from_list(CALLS)
    rows.to_parquet(tmp_path / "rows.parquet")
    frame = pd.read_parquet(tmp_path / "rows.parquet")  # its lists are arrays
    given = {"datasets": rows, "pandas": frame}.get(form)
    file = HubPrompts(path=str(tmp_path / "rows.parquet"))
    source = file if given is None else InMemoryPrompts(given)
    for prompt, text, wanted in zip(source.known(), source.texts(), CALLS, strict=True):
        assert prompt.text == text == ChatText(wanted["messages"][:1], wanted["tools"])
        call = prompt.metadata["completion"].message["tool_calls"][0]["function"]
        assert call == wanted["messages"][1]["tool_calls"][0]["function"]


def test_a_share_is_held_out_and_never_trained_on(saved):
    path = str(saved / "rows.parquet")
    source = HubPrompts(path=path, column="caption", held_out_share=0.25)
    evaluated = {p.text for p in source.held_out(20)}
    assert source.separate
    assert len(evaluated) == 5
    assert evaluated | {p.text for p in source.known()} == set(ROWS["caption"])
    assert len(source.texts()) == 15
    assert not HubPrompts(path=path, column="caption").separate
    assert not HubPrompts(path=str(saved / "both"), column="caption", eval_split="test").separate, (
        "its rows are those of the training split"
    )


def test_a_file_to_evaluate_on_is_taken_wholly(tmp_path):
    (tmp_path / "a.csv").write_text("q,n\n" + "".join(f"{i}+1,{i}\n" for i in range(50)))
    (tmp_path / "b.csv").write_text("q,n\n" + "".join(f"{i}+2,{i}\n" for i in range(30)))
    paths = {"path": str(tmp_path / "a.csv"), "eval_path": str(tmp_path / "b.csv")}
    source = HubPrompts(**paths, column="q", held_out_share=0.5)
    assert len(source.held_out(99)) == 30
    assert len(source.texts()) == 50
    assert source.separate


def test_rows_of_a_data_set_are_left_out(tmp_path):
    rows = datasets.Dataset.from_dict({"prompt": ["a", None, " ", "b"], "answer": ["1"] * 4})
    rows.to_parquet(tmp_path / "a.parquet")
    path = str(tmp_path / "a.parquet")
    with pytest.raises(PromptError, match=r"a.parquet: row 2: `prompt` is empty, None"):
        HubPrompts(path=path)
    source = HubPrompts(path=path, skip_empty=["prompt"])
    assert source.known()[1] == Prompt("b", {"answer": "1"})
    with pytest.raises(PromptError, match="no row that is not left out"):
        HubPrompts(path=path, skip_empty=["prompt", "other"])


def test_pairs_of_a_data_set_have_their_common_beginning(tmp_path):
    rows = [{"chosen": "The sky is blue.", "rejected": "The sky is green."}]
    datasets.Dataset.from_list(rows).save_to_disk(tmp_path / "pairs")
    (prompt,) = HubPrompts(path=str(tmp_path / "pairs")).known()
    assert prompt == Prompt("The sky is", {"chosen": " blue.", "rejected": " green."})


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_pattern_is_all_of_its_files(tmp_path, suffix):
    for name in "ab":
        rows = datasets.Dataset.from_dict({"prompt": [name, name * 2]})
        path = tmp_path / f"{name}.{suffix}"
        rows.to_csv(path) if suffix == "csv" else rows.to_parquet(path)
    assert list(HubPrompts(path=f"{tmp_path}/*.{suffix}").texts()) == ["a", "aa", "b", "bb"]


def test_pick_a_pics_pairs_have_the_preferred_image_first(tmp_path: Path) -> None:
    pairs = [("a", 1.0), ("b", 0.0), ("c", 0.5)]
    rows = [{"caption": t, "jpg_0": b"0", "jpg_1": b"1", "label_0": label} for t, label in pairs]
    path = tmp_path / "pairs.parquet"
    datasets.Dataset.from_list(rows).to_parquet(path)
    words = ["algo=diffusion_dpo_offline", "prompts=pick_a_pic", f"prompts.path={path}"]
    plan_from_words(*words)

    every = HubPrompts(path=str(path), column="caption").known()
    first, second, tie = ({**prompt.metadata} for prompt in every)
    assert (first["chosen"], first["rejected"]) == (b"0", b"1")
    assert (second["chosen"], second["rejected"]) == (b"1", b"0")
    assert "chosen" not in tie
    with pytest.raises(PromptError, match=r"skip_empty=\[chosen\] leaves such rows out"):
        given_image(every[2], "chosen", "chosen")
    preferred = HubPrompts(path=str(path), column="caption", skip_empty=["chosen"])
    assert preferred.texts() == ["a", "b"]


@pytest.mark.parametrize("kind", ["jsonl", "saved"])
def test_pictures_are_looked_for_beside_the_data(tmp_path: Path, kind: str) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "red.png")
    rows = datasets.Dataset.from_dict({"prompt": ["a"], "image": ["red.png"]})
    path = tmp_path if kind == "saved" else tmp_path / "rows.jsonl"
    rows.save_to_disk(path) if kind == "saved" else rows.to_json(path)
    (prompt,) = HubPrompts(path=str(path), image_column="image").known()
    assert prompt.text.source == str(tmp_path / "red.png")


README = """---
configs:
- config_name: main
  data_files: a.jsonl
- config_name: other
  data_files: [{split: train, path: b.jsonl}, {split: test, path: a.jsonl}]
---
"""


def test_a_part_of_a_copy_of_a_hub_repository(tmp_path: Path) -> None:
    for name, text in (("a", "one"), ("b", "two")):
        (tmp_path / f"{name}.jsonl").write_text(f'{{"prompt": "{text}"}}\n')
    (tmp_path / "README.md").write_text(README)
    with pytest.raises(PromptError, match=rf"parts, .*; type prompts.path={tmp_path}/PART"):
        HubPrompts(path=str(tmp_path))
    words = [f"prompts.path={tmp_path}/other", "prompts.eval_split=test", "model=tiny_gpt2"]
    config = plan_from_words("prompts=datasets", *words).config
    made = instantiate_group(config, "prompts")
    assert (made.texts(), [p.text for p in made.held_out(9)]) == (["two"], ["one"])
    with pytest.raises(PromptError, match="other.jsonl: .* no such file"):
        HubPrompts(path=str(tmp_path / "other.jsonl"))


@pytest.mark.parametrize("columns", [{"text": ["a"], "label": [1]}, {"caption": ["a"]}])
def test_a_data_set_without_prompts_names_its_columns(tmp_path: Path, columns: dict) -> None:
    datasets.Dataset.from_dict(columns).save_to_disk(tmp_path / "data")
    with pytest.raises(PromptError, match=f"row 1: has no `prompt`.*are {', '.join(columns)}"):
        HubPrompts(path=str(tmp_path / "data"))


def test_videos_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "1.mp4").touch()
    (tmp_path / "metadata.jsonl").write_text('{"file_name": "1.mp4", "prompt": "a cat"}\n')
    video = HubPrompts(path=str(tmp_path)).draw(1, seed=0, iteration=0)[0].metadata["video"]
    assert video == {"path": str(tmp_path / "1.mp4"), "bytes": None}


@pytest.mark.parametrize(
    ("files", "said"),
    [({"a.jsonl": '{"prompt": '}, "JSON parse error"), ({"data.py": ""}, "scripts are no longer")],
)
def test_why_a_data_set_is_not_loaded(tmp_path: Path, files: dict[str, str], said: str) -> None:
    for name, text in files.items():
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / "data" / name).write_text(text)
    with pytest.raises(PromptError, match=rf"cannot load split 'train': .*{said}"):
        HubPrompts(path=str(tmp_path / "data"))
