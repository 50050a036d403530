"""Memory that ran out, told from other errors by what they say: torch is not needed to know."""

from rlfactory.crossings.base import Config, Traits
from rlfactory.estimate.advice import exhausted
from rlfactory.settings import COMPONENTS
from rlfactory.signature import read

SIGNS = (
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "CUDA out of memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)


def is_exhaustion(error: BaseException) -> bool:
    """Whether the device, or the machine, had no memory left; some libraries hide it in another."""
    named = type(error).__name__ == "OutOfMemoryError" or isinstance(error, MemoryError)
    said = isinstance(error, RuntimeError) and any(sign in str(error) for sign in SIGNS)
    inner = error.__cause__
    return named or said or (inner is not None and is_exhaustion(inner))


def explained(error: BaseException, config: Config) -> str:
    """One message: what ran out, what was expected, the options that help most."""
    first = str(error).strip().partition("\n")[0].partition(". ")[0]
    return f"{exhausted(config, traits_of(config))}\n{first}"


def traits_of(config: Config) -> Traits:
    """What the components of a frozen configuration say of themselves."""
    traits = {key: read(config[key]["_target_"]).traits for key in COMPONENTS if key != "optimizer"}
    terms = config["regularizer"].get("terms") or {}
    for name, node in terms.items():
        traits[f"regularizer.terms.{name}"] = read(node["_target_"]).traits
    return traits
