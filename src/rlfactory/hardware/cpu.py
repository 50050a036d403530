"""What this machine's CPU can compute, by the flags that Linux reports. Imports no torch."""

from functools import cache
from pathlib import Path

CPU_INFO = Path("/proc/cpuinfo")
FLAGS = {
    "bfloat16": {"avx512_bf16", "amx_bf16", "avx_ne_convert", "bf16"},
    "float16": {"avx512_fp16", "amx_fp16", "asimdhp"},
}
"""Instructions for products of a type: of Intel and AMD, and last of ARM."""


def has_instructions(dtype: str) -> bool:
    """Whether the CPU has instructions for a half-precision type; False where Linux does not say.

    Without them torch converts to float32 and back, which takes several times as long.
    """
    return bool(FLAGS[dtype] & _flags(CPU_INFO))


@cache
def _flags(file: Path) -> frozenset[str]:
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    named = (line.partition(":") for line in lines)
    found = [value for name, _, value in named if name.strip() in ("flags", "Features")]
    return frozenset(found[0].split()) if found else frozenset()
