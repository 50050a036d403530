"""The pretended device itself: CUDA's rules, and what it records."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pretended.client import ENV, Pretended

HERE = Path(__file__).parent
SCRIPT = """
import bootstrap, json, torch
from pretended.ledger import LEDGER
from pretended.tensor import PretendedDevice

def kinds(line, **names):
    LEDGER.events.clear()
    try:
        exec(line, {"torch": torch, "a": a, "c": torch.ones(3), "s": torch.tensor(2.0),
                    "p": torch.ones(3).pin_memory(), "m": m, "i": torch.tensor([0, 1]), **names})
    except Exception as error:
        return type(error).__name__
    return sorted({event.kind for event in LEDGER.events})

with PretendedDevice():
    a = torch.arange(3.0, device="cuda"); m = a > 0
    for line in LINES:
        print(json.dumps([line, kinds(line)]))
"""
EXPECTED: dict[str, Any] = {
    "a + 1": [],
    "a + s": [],
    "a + c": "DeviceMismatchError",
    "torch.cat([a, c])": "DeviceMismatchError",
    "torch.full((2,), 1.0, device='cuda')": [],
    "a.sum().item()": ["read"],
    "bool(m.any())": ["read"],
    "a.tolist()": ["read"],
    "a.numpy()": "TypeError",
    "a.nonzero()": ["size"],
    "a[m]": ["size"],
    "a[m] = 0.0": [],
    "a[[0, 1]]": ["upload (pageable)"],
    "a[i]": ["upload (pageable)"],
    "a.cpu()": ["download (pageable)"],
    "a.to('cpu', non_blocking=True)": ["copy (pinned)"],
    "c.cuda()": ["upload (pageable)"],
    "c.to('cuda', non_blocking=True)": ["upload (pageable)"],
    "p.to('cuda')": ["copy (pinned, blocking)"],
    "p.to('cuda', non_blocking=True)": ["copy (pinned)"],
    "p[:2].to('cuda', non_blocking=True)": ["copy (pinned)"],
    "p.copy_(a, non_blocking=True)": ["copy (pinned)"],
    "torch._foreach_copy_([a, a], [p, c])": ["copy (pinned, blocking)", "upload (pageable)"],
    "torch._foreach_copy_([a, a], [p, p], non_blocking=True)": ["copy (pinned)"],
    "c.copy_(a)": ["download (pageable)"],
    "torch.tensor([1.0], device='cuda')": ["upload (pageable)"],
    "assert p.is_pinned() and not c.is_pinned()": [],
    "p.copy_(torch.ones_like(a, device='cpu', pin_memory=True)); p + torch.ones_like(c)": [],
    "torch.empty_like(a, device='cpu', pin_memory=True).copy_(a)": ["copy (pinned, blocking)"],
    "torch.cuda.synchronize()": ["synchronize"],
    "e = torch.cuda.Event(); e.record(); e.synchronize()": ["synchronize"],
    "e = torch.cuda.Event(); e.record(); assert e.query()": [],
    "a.normal_(generator=torch.Generator())": "DeviceMismatchError",
    "torch.nn.utils.clip_grad_norm_([a.clone().requires_grad_()], 1.0)": [],
    "n = torch.nn.Linear(3, 3); n.q = torch.nn.Linear(3, 3); n.q.weight = n.weight;"
    " n.to('cuda'); assert n.q.weight is n.weight and n.weight.is_cuda": ["upload (pageable)"],
}
"""Lines on `a`, `m` (of the GPU), `c`, `s`, `i` (of the CPU), `p` (pinned): what they record."""


@pytest.fixture(scope="module")
def found(pretended: Pretended) -> dict[str, Any]:
    """What each line recorded, or its error."""
    done = subprocess.run(
        [sys.executable, "-c", f"LINES = {list(EXPECTED)}\n{SCRIPT}"],
        cwd=HERE,
        env=ENV,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(line) for line in done.stdout.splitlines())


@pytest.mark.parametrize("line", EXPECTED)
def test_a_line_is_recorded_as_cuda_would_do_it(found: dict[str, Any], line: str) -> None:
    assert found[line] == EXPECTED[line]
