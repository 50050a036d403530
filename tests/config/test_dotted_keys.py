"""Values by their dotted keys."""

from rlfactory.config.dotted_keys import leaves, merged, value_at

CONFIG = {"seed": None, "algo": {"_target_": "a.B", "beta": 0.1, "terms": {}}}


def test_a_value_is_found_and_a_missing_one_is_told_from_null() -> None:
    assert value_at(CONFIG, "algo.beta") == 0.1
    assert value_at(CONFIG, "seed", "missing") is None
    assert value_at(CONFIG, "seed.more", "missing") == "missing"
    assert value_at(CONFIG, "algo.gamma", "missing") == "missing"


def test_leaves_are_values_without_keys_of_their_own() -> None:
    assert [*leaves(CONFIG)] == [("seed", None), ("algo.beta", 0.1)]


def test_mappings_are_merged_at_all_depths_and_other_values_replaced() -> None:
    above = {"algo": {"beta": [1], "terms": None}, "seed": {"a": 1}}
    assert merged(CONFIG, above) == {
        "seed": {"a": 1},
        "algo": {"_target_": "a.B", "beta": [1], "terms": None},
    }
    assert CONFIG["seed"] is None
