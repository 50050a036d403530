"""Files of tensors, read so that a damaged one is a clear error, and compared with what is expected
of them before anything is copied: torch copies a tensor of another shape into memory that it has
not, which ends the interpreter.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from rlfactory.run.folder import RunFolderError
from rlfactory.utils.data_files import FileError, require_file

ERRORS = (SafetensorError, RuntimeError, ValueError, KeyError, TypeError, OverflowError)
FLOATS = ("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2")


@dataclass(frozen=True)
class Form:
    """The shape of a tensor, and whether its values are floating-point numbers."""

    shape: tuple[int, ...]
    is_float: bool

    def __str__(self) -> str:
        shape = "x".join(map(str, self.shape)) or "one number"
        return shape if self.is_float else f"{shape} of whole numbers"


def form_of(tensor: Tensor) -> Form:
    """That of a tensor; of a DTensor the full shape."""
    return Form(tuple(tensor.shape), tensor.is_floating_point())


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors in a file, on the CPU; RunFolderError where it can't be read."""
    with _explained(path):
        return dict(load_file(path))


def read_forms(path: Path) -> dict[str, Form]:
    """The forms of the tensors in a file, from its header; RunFolderError as `read_tensors`."""
    with _explained(path), safe_open(path, "pt") as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        return {
            name: Form(tuple(part.get_shape()), part.get_dtype() in FLOATS)
            for name, part in slices.items()
        }


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Errors of a file of tensors as one that names the file."""
    try:
        require_file(path)
        yield
    except FileNotFoundError as error:
        raise RunFolderError(f"{path} is missing; remove its checkpoint, to use another") from error
    except FileError as error:
        raise RunFolderError(str(error)) from error
    except (*ERRORS, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise RunFolderError(
            f"{path} can't be read ({reason}); remove its checkpoint, to use another"
        ) from error
