import pytest
import torch

from rlfactory.reward.running import Running


def test_batches_of_any_size_have_the_statistics_of_all():
    values = 1e4 + torch.randn(1000, generator=torch.Generator().manual_seed(0)).double()
    running = Running()
    for part in values.split([1, 7, 300, 692]):
        running.update(part)
    assert running.mean == pytest.approx(float(values.mean()), rel=1e-12)
    assert running.std == pytest.approx(float(values.std(unbiased=False)), rel=1e-9)


def test_the_present_scores_count_among_those_they_are_normalised_by():
    running = Running()
    assert running.normalised(torch.tensor([1.0, 3.0]), eps=1e-4).tolist() == [-1, 1]
    found = running.normalised(torch.tensor([5.0, 7.0]), eps=1e-4)
    assert found.tolist() == pytest.approx([1 / 5**0.5, 3 / 5**0.5])
    assert found.dtype == torch.float32


def test_equal_scores_have_no_deviation_and_become_zero():
    running = Running()
    assert running.std == 0
    assert running.normalised(torch.full((4,), 0.1), eps=1e-4).tolist() == pytest.approx([0.0] * 4)


def test_a_restart_goes_on_where_it_was():
    running, again = Running(), Running()
    running.update(torch.tensor([1.0, 5.0, 2.0]))
    again.load_state_dict(running.state_dict())
    more = torch.tensor([4.0, 9.0])
    assert torch.equal(running.normalised(more, 1e-4), again.normalised(more, 1e-4))
    assert again.state_dict() == running.state_dict()
