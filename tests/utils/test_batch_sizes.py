import pytest

from rlfactory.utils.sizes import (
    learning_passes,
    samples_per_start,
    samples_together,
    sampling_passes,
)


@pytest.mark.parametrize(
    ("branches", "steps", "at", "size", "unit", "together"),
    [
        (1, 3, "window", 8, 1, 8),
        (12, 3, "window", 2, 12, 12),  # DanceGRPO
        (6, 9, "step", 8, 54, 54),  # TempFlow-GRPO
        (2, 3, "step", 16, 6, 12),
    ],
)
def test_branches_are_drawn_together(
    branches: int, steps: int, at: str, size: int, unit: int, together: int
) -> None:
    assert samples_per_start(branches, steps, at) == unit
    assert samples_together(size, unit) == together


def test_passes_never_exceed_the_batch() -> None:
    assert sampling_passes(20, 8) == {8, 4}
    assert sampling_passes(24, 2, branches=12) == {2}
    assert sampling_passes(24, 5, branches=12) == {5, 2}
    assert sampling_passes(54, 8, branches=6, steps=9, branch_at="step") == {6}
    assert learning_passes(72, 2, 8) == {8, 4}
    assert learning_passes(72, 2, 6) == {6}
