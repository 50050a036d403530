"""Which requests are scored together, in what order, and what is left when it ends."""

import pytest
import torch

from rlfactory.reward.base import Samples
from rlfactory.tools.serve.batcher import Batcher
from rlfactory.tools.serve.limits import Refusal

from .conftest import Probe


def pictures(value: int, size: int, count: int = 1) -> Samples:
    images = torch.full((count, 3, size, size), value, dtype=torch.uint8)
    return Samples(["p"] * count, [{}] * count, torch.arange(count), images)


def batcher(probe: Probe, max_batch: int) -> Batcher:
    return Batcher(probe, max_batch=max_batch, wait=0.0, queue=9)


def test_pictures_of_one_size_are_scored_together_the_oldest_first():
    probe = Probe()
    probe.blocked.clear()
    found = batcher(probe, 4)
    done = [found.submit(pictures(0, 4))]
    assert probe.begun.wait(10)
    sizes = [(1, 4, 2), (2, 5, 1), (3, 4, 3), (4, 4, 1), (5, 5, 9), (6, 4, 1)]
    done += [found.submit(pictures(*size)) for size in sizes]
    probe.blocked.set()
    scores = [job.result(10)["probe"].mul(255).round().tolist() for job in done]
    assert scores == [[0], [1, 1], [2], [3, 3, 3], [4], [5] * 9, [6]]
    seen = [(tuple(s.images.shape[2:])[0], len(s.prompts)) for s in probe.seen]
    assert seen == [(4, 1), (4, 4), (5, 1), (4, 3), (5, 9)]
    assert probe.seen[1].groups.tolist() == [0, 1, 2, 3]
    found.close(10)


def test_what_waits_at_the_end_is_still_scored():
    probe = Probe()
    probe.blocked.clear()
    found = batcher(probe, 1)
    done = [found.submit(pictures(i, 4)) for i in range(3)]
    found.close(0.01)
    with pytest.raises(Refusal, match="shutting down"):
        found.submit(pictures(9, 4))
    probe.blocked.set()
    assert [len(job.result(10)["probe"]) for job in done] == [1, 1, 1]
    found.close(10)
    found._worker._thread.join(10)
    assert not found._worker._thread.is_alive()
