from typing import Any

from rlfactory.report.run_groups import distinct, flat, following, shown


def config(algo: str = "nft", lr: float = 1e-3, **more: Any) -> dict[str, Any]:
    own = {"beta": 1.0} if algo == "nft" else {"clip": 0.2}
    choices = {"algo": algo, "logger": more.pop("logger", "jsonl"), "experiment": algo}
    return {"seed": 0, "optimizer": {"lr": lr}, "algo": own | more, "choices": choices}


def test_only_differing_keys_are_told() -> None:
    assert distinct([[config()], [config(lr=0.01)]]) == {"optimizer.lr": ["0.001", "0.01"]}
    assert distinct([[config()], [config()]]) == {}


def test_of_another_option_the_choice_is_told_and_not_what_it_brings() -> None:
    assert distinct([[config()], [config("grpo")]]) == {"algo": ["nft", "grpo"]}


def test_rows_of_one_option_are_told_apart_by_its_keys() -> None:
    rows = [[config()], [config(beta=2.0)], [config("grpo")]]
    found = distinct(rows)
    assert found == {"algo": ["nft", "nft", "grpo"], "algo.beta": ["1.0", "2.0", "–"]}


def test_a_row_that_varies_has_all_of_its_values() -> None:
    rows = [[config(), config(lr=0.1)], [config()]]
    assert distinct(rows) == {"optimizer.lr": ["0.001, 0.1", "0.001"]}


def test_a_row_without_runs_makes_no_difference() -> None:
    assert distinct([[], [config()], [config()]]) == {}
    rows = [[config()], [], [config(lr=0.01)]]
    assert distinct(rows) == {"optimizer.lr": ["0.001", "–", "0.01"]}


def test_seeds_loggers_and_folders_say_nothing() -> None:
    other = {**config(logger="wandb"), "seed": 5, "run_dir": "elsewhere", "logger": {"mode": "x"}}
    assert distinct([[config()], [other]]) == {}
    assert not {"seed", "run_dir", "logger.mode"} & {*flat(other)}


def test_values_are_as_they_are_typed_and_not_too_long() -> None:
    assert shown([1, None, True]) == "[1,null,true]"
    assert shown("two\nlines") == "two lines"
    assert len(shown("x" * 500)) == 60


def test_what_a_run_began_with_is_told_without_its_seed() -> None:
    rows = [
        [{**config(), "begin_from": f"x/{name}-s{seed}"} for seed in (0, 1)] for name in ("a", "b")
    ]
    assert distinct(rows) == {"begin_from": ["a", "b"]}
    assert distinct([*rows[:1], [config()]]) == {"begin_from": ["a", "–"]}


def test_what_changes_no_result_tells_no_rows_apart() -> None:
    other = config()
    other["choices"] = other["choices"] | {"hardware": "cpu"}
    other |= {"hardware": {"device": "cpu"}, "evaluation": {"preview_every": 0, "every": 5}}
    assert distinct([[config()], [other]]) == {}
    assert flat(other) == flat(config())
    assert distinct([[config()], [other | {"evaluation": {"prompts": 9}}]]) != {}


def brings(algo: str, **more: Any) -> dict[str, Any]:
    """A configuration with what its algorithm brings: an option of another group, and keys."""
    own = config(algo)
    own["choices"] |= {"dynamics": "ode" if algo == "nft" else "flow_sde"}
    return own | {"iterations": 40 if algo == "nft" else 80, "ema": {"decay": 0.9}} | more


def typed(*keys: str) -> frozenset[str]:
    return frozenset(keys)


def test_what_follows_from_a_choice_is_told_apart_from_what_was_typed() -> None:
    rows = [[brings("nft")], [brings("grpo")]]
    chosen = [typed("algo", "seed"), typed("algo")]
    assert distinct(rows, chosen) == {"algo": ["nft", "grpo"]}
    assert following(rows, chosen) == ["dynamics", "iterations"]
    assert [*distinct(rows)] == ["algo", "dynamics", "iterations"]
    assert distinct(rows, [typed("algo"), None]) == distinct(rows)  # an older folder


def test_what_was_typed_is_told_also_where_an_option_brings_another_value() -> None:
    rows = [[brings("nft", iterations=10)], [brings("grpo")]]
    assert distinct(rows, [typed("algo", "iterations"), typed("algo")]) == {
        "algo": ["nft", "grpo"],
        "iterations": ["10", "80"],
    }
    beta = [[brings("nft") | {"algo": {"beta": 0.1}}], [brings("grpo")]]
    found = distinct(beta, [typed("algo", "algo.beta"), typed("algo")])
    assert found == {"algo": ["nft", "grpo"], "algo.beta": ["0.1", "–"]}


def test_what_differs_between_rows_of_one_option_does_not_follow_from_it() -> None:
    rows = [[brings("nft")], [brings("nft", ema={"decay": 0.5})], [brings("grpo")]]
    found = distinct(rows, [typed("algo")] * 3)
    assert [*found] == ["algo", "ema.decay"]


def test_rows_of_presets_are_told_apart_by_these() -> None:
    rows = [[brings("nft")], [brings("grpo")]]
    found = distinct(rows, [typed("experiment")] * 2)
    assert found == {"experiment": ["nft", "grpo"]}
