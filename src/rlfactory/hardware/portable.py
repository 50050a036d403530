"""The environment variables with which all x86-64-v3 processors compute the same bits.

Imports no torch: torch and numpy read the variables when they are imported, or at the first use.
"""

import os
import platform
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from rlfactory.utils.errors import UserError

VARIABLES = {
    "ATEN_CPU_CAPABILITY": "avx2",  # torch's own kernels
    "ONEDNN_MAX_CPU_ISA": "AVX2",  # convolutions
    # products of matrices, exp, erf, ...; oneMKL ignores any other branch but AUTO on processors
    # that are not Intel's, and fixes cache sizes (Developer Guide, conditional reproducibility)
    "MKL_CBWR": "COMPATIBLE",
    "NPY_DISABLE_CPU_FEATURES": (
        "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR X86_V4"
    ),  # names of several versions of numpy: it ignores those that it doesn't know
    "OPENBLAS_CORETYPE": "Haswell",  # numpy's products of matrices
}
"""By name; each limits one library to the instructions of x86-64-v3."""
MACHINES = ("x86_64", "AMD64")


def use_portable_kernels(node: Mapping[str, Any]) -> None:
    """Set the variables of this process, and of those it starts, if its hardware is `portable`.

    Args:
        node: the configuration's `hardware`.

    Raises:
        UserError: it is too late, since torch is imported, or a variable has another value.
    """
    if not node.get("portable"):
        return
    for fault in conflicts():
        raise UserError(f"hardware.portable=true {fault}")
    if "torch" in sys.modules and (missing := unset()):
        raise UserError(f"hardware.portable=true {missing}")
    os.environ.update(VARIABLES)


def unset() -> str:
    """Advice on the variables that are not set; empty if all are."""
    missing = [f"{k}='{v}'" for k, v in VARIABLES.items() if os.environ.get(k) != v]
    if not missing:
        return ""
    return (
        "sets variables before torch is imported, and this process has imported it; use the"
        f" command, or start Python with {' '.join(missing)}"
    )


def conflicts() -> Iterator[str]:
    """Facts of this machine or environment that stand against portable kernels, a phrase each."""
    if platform.machine() not in MACHINES:
        yield f"is for x86-64 processors, and this one is {platform.machine()}"
    for name, value in VARIABLES.items():
        if (given := os.environ.get(name, value)) != value:
            yield f"needs {name}='{value}', and it is '{given}'; unset it"
