import pytest
import torch

from rlfactory.utils.cumulative import cumsum, tiled_cumsum


@pytest.mark.parametrize("shape", [(1,), (4,), (3, 5), (2, 3, 17), (2, 64), (2, 65)])
def test_tiles_add_up_to_the_same_sums(shape: tuple[int, ...]) -> None:
    values = torch.rand(*shape, generator=torch.Generator().manual_seed(0))
    found = tiled_cumsum(values, tile=4)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, values.double().cumsum(-1).float())
    assert bool((found.diff(dim=-1) >= 0).all())


def test_a_cpu_has_torchs_own() -> None:
    values = torch.rand(2, 1000)
    assert torch.equal(cumsum(values), values.cumsum(-1))
