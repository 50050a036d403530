"""Asking the hub once, and saying what to type where it gives nothing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from huggingface_hub import HfApi, constants, errors
from huggingface_hub.errors import GatedRepoError, OfflineModeIsEnabled, RepositoryNotFoundError
from safetensors import SafetensorError

from rlfactory.model.places import hub_cache, snapshot

PATIENCE = 10.0  # seconds
# that of whichever library huggingface_hub asks by
HTTPError = errors.HTTPError  # type: ignore[attr-defined]


class ModelError(ValueError):
    """A model that can't be loaded; the message says what to type instead."""


def unreachable(place: str) -> Exception | None:
    """Why the hub has nothing to say of an id; None where it has, and of a folder.

    Asked once: of each file that it can't find, transformers asks six times, and waits in between.
    """
    if Path(place).is_dir():
        return None
    try:
        HfApi().model_info(place, timeout=PATIENCE)
    except (HTTPError, OSError, ValueError) as error:
        return error
    return None


@contextmanager
def explained(path: str, kind: str, *, key: str = "model.path") -> Iterator[Callable[[str], str]]:
    """Raise what goes wrong in loading `path` as a ModelError that says what to type.

    What is handed over turns a place into one to load from: the id itself or, where the hub can't
    be asked, the folder in which its files are kept. Told to use those files only, transformers
    would still ask for some.
    """
    found: list[Exception | None] = [None]

    def locate(place: str) -> str:
        found[0] = unreachable(place)
        if found[0] is None:
            return place
        folder = snapshot(place)
        if folder is None:
            raise FileNotFoundError(f"{hub_cache()} holds no {place}")
        return str(folder)

    try:
        yield locate
    except ModelError:
        raise
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError, HTTPError) as error:
        raise ModelError(_message(path, kind, key, error, found[0])) from error


def _message(path: str, kind: str, key: str, error: Exception, why: Exception | None) -> str:
    causes = [*_chain(error), *(_chain(why) if why else [])]
    folder = f"{key}=FOLDER names one that you have"
    if any(isinstance(cause, GatedRepoError) for cause in causes):
        return (
            f"{key}={path} is gated: the hub gives its files to those alone who accepted its"
            f" terms. Do so at {constants.ENDPOINT}/{path}, then type `hf auth login`; or"
            f" {folder}"
        )
    if any(isinstance(cause, RepositoryNotFoundError) for cause in causes):
        return (
            f"{key}={path}: the hub knows no such model, or it is private. Mind the spelling; for"
            f" a private one type `hf auth login`; or {folder}"
        )
    if why is not None and isinstance(error, OSError):
        offline = isinstance(why, OfflineModeIsEnabled)
        reason = "HF_HUB_OFFLINE is set" if offline else _first_line(why)
        return (
            f"{key}={path} can't be loaded: the hub can't be asked ({reason}), and"
            f" {hub_cache()} does not hold all of it. Where there is a network, `hf download"
            f" {path}` fetches it (behind `hf auth login`, where its terms ask for a login); or"
            f" {folder}"
        )
    # transformers goes on with the names of a hundred models
    reason = str(error).partition("\nModel type should be one of")[0]
    return f"{key}={path} could not be loaded as {kind}: {reason}"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
