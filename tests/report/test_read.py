from collections.abc import Callable
from pathlib import Path

import pytest

from rlfactory.report.read import DAMAGED, read_run, typed_keys
from rlfactory.run.folder import RunFolder

Make = Callable[..., Path]


def test_a_run_is_its_status_its_configuration_and_its_series(
    tmp_path: Path, make_run: Make
) -> None:
    run = read_run(make_run(tmp_path / "a", seed=3, media="images"))
    assert (run.status, run.seed, run.iterations, run.media) == ("done", 3, 4, "images")
    x, y = run.series["eval/shapes/mean"]
    assert (x.tolist(), y.tolist()) == ([0, 4], [0.2, 0.8])
    x, y = run.series["reward/shapes/mean"]
    assert x.tolist() == [1, 2, 3, 4]
    assert y.tolist() == pytest.approx([0.35, 0.5, 0.65, 0.8])
    assert run.series["nfe/total"][1][-1] == 4000


def test_what_is_null_throughout_is_no_series(tmp_path: Path, make_run: Make) -> None:
    run = read_run(make_run(tmp_path / "a"))
    assert "loss/policy" not in run.series
    assert "eval/shapes/two" not in run.series


def test_the_order_of_the_series_is_that_of_the_file(tmp_path: Path, make_run: Make) -> None:
    path = make_run(tmp_path / "a")
    line = ", ".join(f'"reward/{name}/mean": 1.0' for name in "qwertyuiop")
    (path / "metrics.jsonl").write_text(f'{{"iteration": 1, "time": 0.1, {line}}}\n')
    assert [*read_run(path).series][2:] == [f"reward/{name}/mean" for name in "qwertyuiop"]


@pytest.mark.parametrize(
    "line",
    [
        '{"iteration": 2, "reward/a/mean": 0.5}',
        '{"iteration": 2, "reward/a/mean":0.5, "z": null}',
        '{ "reward/a/mean" : 0.1, "reward/a/mean": 0.5, "iteration": 2 }',
    ],
)
def test_a_value_is_found_wherever_it_stands(tmp_path: Path, make_run: Make, line: str) -> None:
    path = make_run(tmp_path / "a")
    first = '{"iteration": 1, "time": 0.1, "reward/a/mean": null}\n'
    (path / "metrics.jsonl").write_text(first + line + "\n")
    x, y = read_run(path).series["reward/a/mean"]
    assert (x.tolist(), y.tolist()) == ([2], [0.5])


def test_of_an_iteration_that_was_done_again_the_last_counts(
    tmp_path: Path, make_run: Make
) -> None:
    path = make_run(tmp_path / "a")
    lines = [f'{{"iteration": {i}, "reward/a/mean": {v}}}' for i, v in ((1, 1), (2, 2), (1, 3))]
    (path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    x, y = read_run(path).series["reward/a/mean"]
    assert (x.tolist(), y.tolist()) == ([1, 2], [3, 2])


def test_a_torn_last_line_is_no_damage(tmp_path: Path, make_run: Make) -> None:
    path = make_run(tmp_path / "a", status="running")
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"iteration": 3, "time": 4.0, "rew')
    assert read_run(path).iterations == 2


def _zeros(path: Path) -> None:
    (path / "metrics.jsonl").write_bytes(b"\0" * 100 + b"\n")


def _cut_in_two(path: Path) -> None:
    (path / "metrics.jsonl").write_text('{"iteration": 1, "time": 0.1, "a": 1\n{"iteration": 2}\n')


def _no_number(path: Path) -> None:
    (path / "metrics.jsonl").write_text('{"iteration": 1, "kl/reference": 0.x1}\n')


def _list(path: Path) -> None:
    (path / "metrics.jsonl").write_text("[1, 2]\n")


def _half_config(path: Path) -> None:
    text = (path / "config.yaml").read_text()
    (path / "config.yaml").write_text(text[:7])


def _no_yaml(path: Path) -> None:
    (path / "config.yaml").write_text("a: [1, 2\nb: }")


def _no_config(path: Path) -> None:
    (path / "config.yaml").unlink()


def _no_metrics(path: Path) -> None:
    (path / "metrics.jsonl").unlink()


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (_zeros, "line 1"),
        (_cut_in_two, "line 1"),
        (_no_number, "line 1"),
        (_list, "line 1"),
        (_half_config, "holds no configuration"),
        (_no_yaml, "line 2 can't be read"),
        (_no_config, "missing"),
        (_no_metrics, "no metrics.jsonl"),
    ],
)
def test_damage_is_named(
    tmp_path: Path, make_run: Make, harm: Callable[[Path], None], told: str
) -> None:
    path = make_run(tmp_path / "a")
    harm(path)
    run = read_run(path)
    assert (run.status, run.is_read) == (DAMAGED, False)
    assert told in run.fault


def test_a_run_that_has_only_begun_has_nothing_to_tell(tmp_path: Path, make_run: Make) -> None:
    path = make_run(tmp_path / "a", status="running")
    (path / "metrics.jsonl").unlink()
    run = read_run(path)
    assert (run.status, run.iterations, {**run.series}) == ("running", 0, {})


@pytest.mark.parametrize(
    ("command", "keys"),
    [
        ("rlfactory algo=nft +reward.x=1 'a.b=[1, 2]' ~c.d=3", {"algo", "reward.x", "a.b", "c.d"}),
        ("rlfactory -m --algo=nft,grpo seed=0,1", {"algo", "seed"}),
        ("rlfactory", set()),
        ("rlfactory.train('algo=nft', 'optimizer.lr=0.1')", {"algo", "optimizer.lr"}),
        ("rlfactory.train('a=(1)')", {"a"}),
        ("rlfactory.train()", set()),
    ],
)
def test_the_keys_of_a_command(tmp_path: Path, command: str, keys: set[str]) -> None:
    folder = RunFolder(tmp_path)
    folder.command.write_text(f"{command}\n")
    assert typed_keys(folder) == keys


def test_unknown_where_the_folder_does_not_say_all(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert typed_keys(folder) is None  # an earlier version
    folder.command.write_text("rlfactory 'unclosed")
    assert typed_keys(folder) is None
    folder.command.write_text("rlfactory.train('algo=nft')")
    folder.objects.write_text('{"reward": "a function"}')
    assert typed_keys(folder) is None
