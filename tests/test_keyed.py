import torch

from rlfactory import keyed


def test_a_row_depends_on_its_index_and_not_on_its_place() -> None:
    for draw in (keyed.normal, keyed.uniform):
        alone = draw(0, "start", [3], [7], [4, 2])
        among = draw(0, "start", [3], [5, 7, 1], [4, 2])
        torch.testing.assert_close(among[1], alone[0], rtol=0, atol=0)


def test_seed_stream_key_and_index_each_matter() -> None:
    rows = [
        keyed.normal(0, "start", [3], [7], [8]),
        keyed.normal(1, "start", [3], [7], [8]),
        keyed.normal(0, "noise", [3], [7], [8]),
        keyed.normal(0, "start", [4], [7], [8]),
        keyed.normal(0, "start", [3], [8], [8]),
    ]
    assert len({tuple(row.flatten().tolist()) for row in rows}) == len(rows)


def test_neighbouring_keys_do_not_run_together() -> None:
    assert keyed.seed_of(0, "a", 1, 23) != keyed.seed_of(0, "a", 12, 3)
    assert len({keyed.seed_of(s, "a", i) for s in range(30) for i in range(30)}) == 900


def test_the_global_generator_is_neither_read_nor_moved() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first = keyed.normal(0, "start", [], [0], [3])
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(1)
    assert torch.equal(keyed.normal(0, "start", [], [0], [3]), first)


def test_values_are_the_same_in_every_process() -> None:
    # Provenance: blake2b of "0/start/3/7", 8 bytes big-endian, shifted right once; and what
    # torch.Generator().manual_seed of it draws. A change here changes every run there was.
    assert keyed.seed_of(0, "start", 3, 7) == 1_352_998_084_433_694_349
    torch.testing.assert_close(
        keyed.normal(0, "start", [3], [7], [3])[0],
        torch.tensor([-0.89488, -2.898963, -0.481161]),
        rtol=0,
        atol=1e-6,
    )


def test_rows_are_standard_normal_and_uniform() -> None:
    normal = keyed.normal(0, "start", [], range(400), [100])
    assert abs(normal.mean()) < 0.02
    assert abs(normal.std() - 1) < 0.02
    uniform = keyed.uniform(0, "start", [], range(400), [100])
    assert uniform.min() >= 0
    assert uniform.max() < 1
    assert abs(uniform.mean() - 0.5) < 0.01
