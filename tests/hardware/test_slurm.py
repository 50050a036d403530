"""Host lists as SLURM's documentation writes them."""

import pytest

from rlfactory.hardware.slurm import expand_hosts


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", []),
        ("gpu3", ["gpu3"]),
        ("node-a,node-b", ["node-a", "node-b"]),
        (
            "node[01-04,07],gpu3",
            ["node01", "node02", "node03", "node04", "node07", "gpu3"],
        ),
        ("n[8-11]", ["n8", "n9", "n10", "n11"]),
        ("n[098-101]", ["n098", "n099", "n100", "n101"]),
        ("rack[0-1]n[1-2].site", ["rack0n1.site", "rack0n2.site", "rack1n1.site", "rack1n2.site"]),
        ("b2,a[3,1]", ["b2", "a3", "a1"]),
    ],
)
def test_host_lists_are_expanded_in_their_order(text: str, hosts: list[str]) -> None:
    assert expand_hosts(text) == hosts
