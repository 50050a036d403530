import json

import pytest

from rlfactory.prompts.base import Prompt, PromptError
from rlfactory.prompts.file import FilePrompts

ROW = {"tag": "colors", "include": [{"class": "circle", "count": 1}], "prompt": "a red circle"}


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


def test_text(write):
    source = FilePrompts(path=write("p.txt", "\ufeffeins\r\n\n  zwei \nüber\u2028alles"))
    assert [p.text for p in source.held_out(9)] == ["eins", "zwei", "über\u2028alles"]
    assert {p.text for p in source.draw(3, seed=0, iteration=0)} == {
        "eins",
        "zwei",
        "über\u2028alles",
    }


def test_jsonl(write):
    source = FilePrompts(path=write("p.jsonl", json.dumps(ROW) + "\n\n" + json.dumps(ROW)))
    metadata = {"tag": "colors", "include": ROW["include"]}
    assert source.held_out(1) == [Prompt("a red circle", metadata)]


def test_evaluation_has_its_own_file_or_takes_training_prompts(write):
    train = write("train.txt", "\n".join(map(str, range(100))))
    assert [p.text for p in FilePrompts(path=train).held_out(4)] == ["0", "25", "50", "75"]
    source = FilePrompts(path=train, eval_path=write("eval.txt", "a\nb"))
    assert [p.text for p in source.held_out(4)] == ["a", "b"]
    assert all(p.text.isdigit() for p in source.draw(8, seed=0, iteration=0))


def test_draws_are_keyed(write):
    source = FilePrompts(path=write("p.txt", "\n".join(map(str, range(100)))))
    draws = [[p.text for p in source.draw(8, seed=0, iteration=i)] for i in (0, 1, 0)]
    assert draws[0] == draws[2] != draws[1]
    assert not set(draws[0]) & set(draws[1])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.txt", "", r"p\.txt: no prompts"),
        ("p.jsonl", "\n \n", r"p\.jsonl: no prompts"),
        ("p.txt", b"fine\nnot \xff fine", r"p\.txt:2: not UTF-8"),
        ("p.jsonl", '{"prompt": "a"}\n{"prompt": ', r"p\.jsonl:2: not JSON"),
        (
            "p.jsonl",
            '{"prompt": "a"}\n\n{"text": "b"}',
            r"p\.jsonl:3: has no `prompt`, as rows before it; its keys are text",
        ),
        ("p.jsonl", '{"prompt": 3}', r"p\.jsonl:1: .*it is 3"),
        ("p.jsonl", '["a"]', r"p\.jsonl:1: .*not list"),
        ("p.csv", "a", "a line of column names alone"),
        ("p.doc", "a", r"from \.txt, \.jsonl"),
    ],
)
def test_bad_files_are_named_with_the_line(write, name, content, message):
    with pytest.raises(PromptError, match=message):
        FilePrompts(path=write(name, content))


def test_missing_files(write, tmp_path):
    with pytest.raises(PromptError, match=r"gone\.txt: cannot read prompts: No such file"):
        FilePrompts(path=str(tmp_path / "gone.txt"))
    with pytest.raises(PromptError, match=r"gone\.txt"):
        FilePrompts(path=write("p.txt", "a"), eval_path=str(tmp_path / "gone.txt"))


def test_a_share_is_held_out_and_never_trained_on(write):
    path = write("p.txt", "\n".join(f"prompt {i % 50}" for i in range(100)))
    source = FilePrompts(path=path, held_out_share=0.1)
    evaluated = {p.text for p in source.held_out(100)}
    assert source.separate
    assert len(evaluated) == 5
    assert len(source.known()) == 90, "repeated lines are on one side"
    assert not evaluated & {p.text for p in source.known()}


def test_what_is_trained_on_is_not_separate(write):
    path = write("p.txt", "\n".join(map(str, range(30))))
    assert not FilePrompts(path=path).separate
    assert not FilePrompts(path=path, held_out_share=0.1).separate, "three would be too few"
    assert FilePrompts(path=path, eval_path=write("e.txt", "a\nb")).separate
    assert not FilePrompts(path=path, eval_path=write("e.txt", "a\n3")).separate, "one is in both"


def test_a_share_of_all_leaves_none_to_train_on(write):
    path = write("p.txt", "\n".join(map(str, range(30))))
    with pytest.raises(PromptError, match="leaves none to train on"):
        FilePrompts(path=path, held_out_share=1.0)
