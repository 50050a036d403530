from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rlfactory.report.read import read_run
from rlfactory.report.run_groups import groups_of_runs, groups_of_table, telling
from rlfactory.sweep.table import Job, Row, Table

Make = Callable[..., Path]


def test_runs_that_differ_in_their_seed_alone_are_a_row(tmp_path: Path, make_run: Make) -> None:
    for name, seed, lr in (("a", 0, 0.1), ("b", 1, 0.1), ("c", 0, 0.2)):
        make_run(tmp_path / name, seed=seed, config={"optimizer": {"lr": lr}})
    members = [read_run(tmp_path / name) for name in "abc"]
    groups = groups_of_runs(members)
    assert [group.name for group in groups] == ["optimizer.lr=0.1", "optimizer.lr=0.2"]
    assert [[m.path.name for m in group.members] for group in groups] == [["a", "b"], ["c"]]


def test_rows_are_called_by_their_choices(tmp_path: Path, make_run: Make) -> None:
    for name in ("nft", "grpo"):
        make_run(tmp_path / name, choices={"algo": name})
    groups = groups_of_runs(read_run(tmp_path / n) for n in ("nft", "grpo"))
    assert [group.name for group in groups] == ["algo=nft", "algo=grpo"]


def test_rows_are_called_by_what_was_typed_and_not_by_what_follows(
    tmp_path: Path, make_run: Make
) -> None:
    for name, iterations, words in (("nft", 4, "algo.beta=0.1"), ("grpo", 8, "seed=0")):
        beta = {"algo": {"beta": 0.1}} if name == "nft" else {}
        run = make_run(tmp_path / name, choices={"algo": name}, iterations=iterations, config=beta)
        (run / "command.txt").write_text(f"rlfactory algo={name} {words}\n")
    groups = groups_of_runs(read_run(tmp_path / n) for n in ("nft", "grpo"))
    assert [group.name for group in groups] == ["algo=nft, algo.beta=0.1", "algo=grpo"]


def test_a_lone_row_is_called_by_its_choices(tmp_path: Path, make_run: Make) -> None:
    (group,) = groups_of_runs([read_run(make_run(tmp_path / "a"))])
    assert group.name == "tiny_sd3, nft, shapes"


def test_a_damaged_run_is_a_row_by_its_folders_name(tmp_path: Path, make_run: Make) -> None:
    make_run(tmp_path / "a")
    broken = make_run(tmp_path / "b")
    (broken / "config.yaml").unlink()
    groups = groups_of_runs([read_run(tmp_path / n) for n in ("a", "b")])
    assert [(group.name, group.status) for group in groups][1] == ("b", "1 damaged")
    assert groups[1].runs == []


def test_only_what_is_done_counts(tmp_path: Path, make_sweep: Make, make_run: Make) -> None:
    folder = make_sweep(tmp_path / "s")
    make_run(folder / "nft-s0")
    make_run(folder / "nft-s1", seed=1, status="preempted")
    nft, grpo, flux = groups_of_table(Table.load(folder), folder)
    assert [run.path.name for run in nft.runs] == ["nft-s0"]
    assert nft.status == "1 done, 1 preempted"
    assert grpo.status == "2 not begun"
    assert flux.status == "published"
    assert nft.claimed == {"shapes": 0.9}
    assert replace(flux, claimed={}).status == "not run"


def _table(folder: Path, rows: list[Row], jobs: list[Job], make_sweep: Make) -> Table:
    return Table.load(make_sweep(folder, rows=rows, jobs=jobs))


def test_runs_that_vary_in_more_than_the_seed_are_several_rows(
    tmp_path: Path, make_sweep: Make
) -> None:
    jobs = [
        Job(f"j{lr}{s}", "A", f"j{lr}{s}", [], {"optimizer.lr": lr, "seed": s})
        for lr in (0.1, 0.2)
        for s in (0, 1)
    ]
    table = _table(tmp_path / "s", [Row("A", {"shapes": 0.5})], jobs, make_sweep)
    groups = groups_of_table(table, tmp_path / "s")
    assert [group.name for group in groups] == ["A, optimizer.lr=0.1", "A, optimizer.lr=0.2"]
    assert [len(group.members) for group in groups] == [2, 2]
    assert all(group.claimed == {"shapes": 0.5} for group in groups)


def test_a_trial_has_its_number_and_rounded_values(tmp_path: Path, make_sweep: Make) -> None:
    values = [(6.73045e-05, 0.0405456), (2.5e-4, 0.1)]
    jobs = [
        Job(
            f"j{n}",
            "A",
            f"j{n}",
            [],
            {"optimizer.lr": lr, "regularizer.coefficient.value": weight, "trial": n, "seed": 0},
        )
        for n, (lr, weight) in enumerate(values)
    ]
    table = _table(tmp_path / "s", [Row("A")], jobs, make_sweep)
    assert [group.name for group in groups_of_table(table, tmp_path / "s")] == [
        "A, trial 0: optimizer.lr 6.73e-05, coefficient.value 0.0405",
        "A, trial 1: optimizer.lr 0.00025, coefficient.value 0.1",
    ]


def test_of_stages_the_last_counts_and_remembers_the_earlier(
    tmp_path: Path, make_sweep: Make, make_run: Make
) -> None:
    jobs = [
        Job("a1", "A", "a1", [], {"seed": 0, "stage": 1}),
        Job("a2", "A", "a2", [], {"seed": 0, "stage": 2}, after="a1"),
        Job("a3", "A", "a3", [], {"seed": 0, "stage": 3}, after="a2"),
    ]
    folder = tmp_path / "s"
    table = _table(folder, [Row("A")], jobs, make_sweep)
    for job in jobs:
        make_run(folder / job.folder)
    (group,) = groups_of_table(table, folder)
    assert (group.name, group.status) == ("A", "1 done")
    assert group.members[0].path.name == "a3"
    assert [run.path.name for run in group.members[0].earlier] == ["a1", "a2"]


def test_a_row_before_training_is_measured_by_the_first_stage_of_another(
    tmp_path: Path, make_sweep: Make, make_run: Make
) -> None:
    jobs = [
        Job("a1", "A", "a1", [], {"seed": 0}),
        Job("a2", "A", "a2", [], {"seed": 0}, after="a1"),
    ]
    folder = tmp_path / "s"
    rows = [Row("base", {"shapes": 0.1}, before="A"), Row("A")]
    table = _table(folder, rows, jobs, make_sweep)
    for job in jobs:
        make_run(folder / job.folder)
    base, own = groups_of_table(table, folder)
    assert base.untrained
    assert [run.path.name for run in base.runs] == ["a1"]
    assert base.status == "before training"
    assert not own.untrained


def test_a_stage_of_another_row_is_an_earlier_stage_of_this_one(
    tmp_path: Path, make_sweep: Make, make_run: Make
) -> None:
    jobs = [
        Job("a1", "A", "a1", [], {"seed": 0, "stage": 1}),
        Job("a2", "A", "a2", [], {"seed": 0, "stage": 2}, after="a1"),
        Job("b2", "B", "b2", [], {"seed": 0, "stage": 2}, after="a1"),
    ]
    folder = tmp_path / "s"
    table = _table(folder, [Row("base", before="B"), Row("A"), Row("B")], jobs, make_sweep)
    for job in jobs:
        make_run(folder / job.folder)
    base, first, second = groups_of_table(table, folder)
    assert [run.path.name for run in base.runs] == ["a1"]
    assert [run.path.name for run in first.runs] == ["a2"]
    assert [run.path.name for run in second.runs] == ["b2"]
    assert [run.path.name for run in second.members[0].earlier] == ["a1"]


def test_stages_that_vary_are_called_by_what_varies(tmp_path: Path, make_sweep: Make) -> None:
    jobs = [
        Job(f"a{lr}", "A", f"a{lr}", [], {"lr": lr, "seed": 0, "stage": 2}) for lr in (0.1, 0.2)
    ]
    table = _table(tmp_path / "s", [Row("A")], jobs, make_sweep)
    groups = groups_of_table(table, tmp_path / "s")
    assert [group.name for group in groups] == ["A, lr=0.1", "A, lr=0.2"]


def test_a_row_is_called_by_as_few_keys_as_tell_it_apart() -> None:
    differences = {
        "optimizer.lr": ["1", "2", "2"],
        "dynamics": ["ode", "sde", "sde"],
        "algo": ["nft", "grpo", "grpo"],
        "epochs": ["1", "1", "4"],
    }
    assert [*telling(differences)] == ["algo", "epochs"]
    assert telling({}) == {}
