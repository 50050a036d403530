"""What the CPU can compute, by its flags."""

from pathlib import Path

import pytest

from rlfactory.hardware import cpu


@pytest.mark.parametrize(
    ("text", "bfloat16", "float16"),
    [
        ("model name\t: x\nflags\t\t: fpu avx2 avx512_bf16\n", True, False),
        ("flags\t\t: fpu avx2 f16c avx512f\n", False, False),
        ("Features\t: fp asimd asimdhp bf16\n", True, True),
        ("", False, False),
    ],
)
def test_half_precision_goes_by_the_flags(
    text: str, bfloat16: bool, float16: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(cpu, "CPU_INFO", tmp_path / "cpuinfo")
    assert cpu.has_instructions("bfloat16") == bfloat16
    assert cpu.has_instructions("float16") == float16


def test_where_linux_does_not_say_there_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "CPU_INFO", tmp_path / "nothing")
    assert not cpu.has_instructions("bfloat16")
