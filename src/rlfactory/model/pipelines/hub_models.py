"""Requests to the Hugging Face hub, and messages that say what to type when loading fails."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from huggingface_hub import HfApi, constants, errors
from huggingface_hub.errors import GatedRepoError, OfflineModeIsEnabled, RepositoryNotFoundError
from safetensors import SafetensorError

from rlfactory.model.pipelines.local_models import hub_cache, snapshot
from rlfactory.utils.errors import ModelError

TIMEOUT = 10.0  # seconds
# of the HTTP library that huggingface_hub uses
HTTPError = errors.HTTPError  # type: ignore[attr-defined]
DRAWING_BARS = ("diffusers.utils.logging", "transformers.utils.logging")
# a quantised model needs a package that may be missing
LOADING_ERRORS = (OSError, ValueError, KeyError, RuntimeError, ImportError)


def unreachable(location: str) -> Exception | None:
    """Why the hub gives no information on an id; None if it does, and for a folder.

    One request, made first, because transformers makes six for each missing file, with waits.
    """
    if Path(location).is_dir():
        return None
    try:
        HfApi().model_info(location, timeout=TIMEOUT)
    except (HTTPError, OSError, ValueError) as error:
        return error
    return None


@contextmanager
def explained(path: str, kind: str, *, key: str = "model.path") -> Iterator[Callable[[str], str]]:
    """Turn errors of loading `path`, as the user wrote it under `key`, into a ModelError that says
    what to type, and that it is no `kind`.

    Yields a function that maps a folder or hub id to what should be loaded: itself or, if the hub
    can't be reached, the cached folder of its files. (With `local_files_only`, transformers would
    still make requests.)
    """
    hub_error: list[Exception | None] = [None]

    def locate(location: str) -> str:
        if Path(location).is_absolute() and not Path(location).exists():
            raise ModelError(f"{key}={path} does not exist; type {key}=FOLDER if it was moved")
        hub_error[0] = unreachable(location)
        if hub_error[0] is None:
            return location
        folder = snapshot(location)
        if folder is None:
            raise FileNotFoundError(f"{hub_cache()} holds no {location}")
        return str(folder)

    try:
        yield locate
    except ModelError:
        raise
    except (*LOADING_ERRORS, SafetensorError, HTTPError) as error:
        raise ModelError(_message(path, kind, key, error, hub_error[0])) from error


def _message(path: str, kind: str, key: str, error: Exception, hub_error: Exception | None) -> str:
    causes = [*_chain(error), *(_chain(hub_error) if hub_error else [])]
    folder = f"type {key}=FOLDER with a local copy"
    if any(isinstance(cause, GatedRepoError) for cause in causes):
        return (
            f"{key}={path} is gated: accept its terms at {constants.ENDPOINT}/{path}, then type"
            f" `hf auth login`; or {folder}"
        )
    if any(isinstance(cause, RepositoryNotFoundError) for cause in causes):
        return (
            f"{key}={path}: the hub knows no such model, or it is private. Check the spelling; for"
            f" a private one type `hf auth login`; or {folder}"
        )
    if hub_error is not None and isinstance(error, OSError):
        offline = isinstance(hub_error, OfflineModeIsEnabled)
        reason = "HF_HUB_OFFLINE is set" if offline else first_line(hub_error)
        return (
            f"{key}={path} can't be loaded: the hub can't be reached ({reason}), and"
            f" {hub_cache()} does not have all of its files. With a network, `hf download {path}`"
            f" fetches them (after `hf auth login`, if its terms require a login); or {folder}"
        )
    # transformers appends the names of a hundred models
    reason = str(error).partition("\nModel type should be one of")[0]
    other = "; of an image model type its option, as in model=sdxl model.path=" + path
    hint = other if key == "model.path" and "named config.json" in reason else ""
    return f"{key}={path} could not be loaded as {kind}: {' '.join(reason.split())}{hint}"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its class."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


@contextmanager
def no_bars() -> Iterator[None]:
    """Hide the progress bars that diffusers and transformers draw while they load or save."""
    logs = [sys.modules[name] for name in DRAWING_BARS if name in sys.modules]
    shown = [library for library in logs if library.is_progress_bar_enabled()]
    for library in shown:
        library.disable_progress_bar()
    try:
        yield
    finally:
        for library in shown:
            library.enable_progress_bar()
