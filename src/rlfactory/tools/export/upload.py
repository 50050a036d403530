"""Uploads an export to the Hugging Face hub."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import HfApi, get_token
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils._validators import validate_repo_id
from huggingface_hub.utils.tqdm import disable_progress_bars, enable_progress_bars

from rlfactory.model.pipelines.hub_models import HTTPError, first_line
from rlfactory.model.pipelines.local_models import is_offline
from rlfactory.utils.errors import UserError

MESSAGE = "Weights and model card, exported by rlfactory"


class UploadError(UserError, RuntimeError):
    """An export that can't be uploaded; the message says what to type."""


@dataclass(frozen=True)
class Upload:
    """Where to upload to.

    Attributes:
        repo: `USER/NAME`.
        private: make a new repository private.
        run: the run folder, for messages.
        to: the folder that holds the export afterwards; None if it is temporary.
    """

    repo: str
    private: bool
    run: Path
    to: Path | None = None

    def prepare(self) -> None:
        """Make the repository, before work is done that could not be uploaded.

        Raises:
            UploadError: the name is wrong, there is no network or no token, the token may not
                write there, or the repository is public and should be private.
        """
        try:
            validate_repo_id(self.repo)
        except ValueError as error:
            raise UploadError(f"--push: {error}") from error
        if self.repo.count("/") != 1:
            raise UploadError(f"--push: is {self.repo}; allowed is USER/NAME")
        if is_offline():
            raise UploadError(f"--push: HF_HUB_OFFLINE is set; {self._later()}")
        if get_token() is None:
            login = "type `hf auth login` and give it a token that may write"
            raise UploadError(f"--push: this machine has no token of the hub; {login}")
        with self._explained():
            api = HfApi()
            api.create_repo(self.repo, private=self.private or None, exist_ok=True)
            if self.private and not api.model_info(self.repo).private:
                message = f"{self.repo} exists and is public; --push another name"
                raise UploadError(f"--private: {message}")

    def upload(self, folder: Path) -> str:
        """Upload the content of a folder as one commit; returns the repository's address.

        Raises:
            UploadError: it failed.
        """
        disable_progress_bars()
        try:
            with self._explained():
                done = HfApi().upload_folder(
                    repo_id=self.repo, folder_path=folder, commit_message=MESSAGE
                )
        finally:
            enable_progress_bars()
        return str(done.repo_url)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except HfHubHTTPError as error:
            problem = f"the hub refused: {first_line(error)}"
            if getattr(error.response, "status_code", 0) in (401, 403):
                may_not = f"the token may not write to {self.repo}"
                problem = f"{may_not}; type `hf auth login` and give it one that may"
            raise UploadError(f"--push: {problem}") from error
        except (HTTPError, OSError) as error:
            reason = first_line(error)
            raise UploadError(f"--push: no hub answers ({reason}); {self._later()}") from error

    def _later(self) -> str:
        """The command to type where there is a network."""
        to = shlex.quote(str(self.to or Path(self.repo).name))
        here = f"`rlfactory export {shlex.quote(str(self.run))} --to {to}` works without it, and "
        here = "" if self.to and self.to.exists() else here
        return f"{here}where there is a network, `hf upload {self.repo} {to}` uploads the folder"
