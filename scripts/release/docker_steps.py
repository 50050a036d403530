"""Run the steps of a Dockerfile where no Docker daemon is: in a new virtual environment.

python scripts/release/docker_steps.py                           # then `rlfactory check` in it
python scripts/release/docker_steps.py --build-arg DEVICE=cuda -- --version

Folders of the image lie in a temporary folder. `FROM` is the Python that runs this script, and
`USER` is whoever runs it. Instructions other than those of this project's Dockerfile are refused.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]


def instructions(dockerfile: str) -> Iterator[tuple[str, str]]:
    """Each instruction in capitals and its arguments, with continued lines joined."""
    lines = [line for line in dockerfile.splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n", "", "\n".join(lines)).splitlines():
        if line.strip():
            name, _, rest = line.strip().partition(" ")
            yield name.upper(), rest.strip()


@dataclass
class Steps:
    """What the instructions have set so far.

    Attributes:
        context: the folder that `COPY` copies from.
        image: the folder that stands for the image's `/`.
        arguments: those of `--build-arg`.
        variables: the environment of `RUN`.
        entrypoint: the command of the image.
    """

    context: Path
    image: Path
    arguments: Mapping[str, str]
    variables: dict[str, str]
    entrypoint: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder = self.image

    def do(self, name: str, rest: str) -> None:
        """Carry out one instruction.

        Raises:
            ValueError: this script can't.
            subprocess.CalledProcessError: a command of `RUN` failed.
        """
        match name:
            case "ARG":
                key, _, default = rest.partition("=")
                self.variables[key] = self.arguments.get(key, default)
            case "ENV":
                self.variables |= dict(word.split("=", 1) for word in rest.split())
                if "HOME" in self.variables:
                    self.variables["HOME"] = str(self._inside(self.variables["HOME"]))
            case "WORKDIR":
                self.folder = self._inside(rest)
                self.folder.mkdir(parents=True, exist_ok=True)
            case "COPY":
                *sources, target = rest.split()
                for source in sources:
                    self._copy(self.context / source, self.folder / target)
            case "RUN":
                self.run(["sh", "-c", rest])
            case "ENTRYPOINT":
                self.entrypoint = json.loads(rest)
            case "FROM" | "USER":
                pass
            case _:
                raise ValueError(f"{name}: this script has no such instruction")

    def run(self, command: Sequence[str]) -> None:
        """Run a command as `RUN` and `docker run` would; CalledProcessError if it fails."""
        subprocess.run(command, cwd=self.folder, env=self.variables, check=True)

    def _inside(self, path: str) -> Path:
        return self.image / Path(path).relative_to("/")

    def _copy(self, source: Path, target: Path) -> None:
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, target, ignore=ignored, dirs_exist_ok=True)
        else:
            shutil.copy(source, target)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("command", nargs="*", default=["check"], help="for the entrypoint")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        python = Path(work) / "python"
        venv.create(python, with_pip=True, symlinks=True)
        image = Path(work) / "image"
        image.mkdir()
        # the host's environment, as a build has its network and proxies; but none of its packages
        variables = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
        variables["PATH"] = f"{python / 'bin'}{os.pathsep}{os.environ['PATH']}"
        given = dict(word.split("=", 1) for word in arguments.build_arg)
        steps = Steps(ROOT, image, given, variables)
        try:
            for number, (name, rest) in enumerate(instructions((ROOT / "Dockerfile").read_text())):
                print(f"== step {number + 1}: {name} {rest}", flush=True)
                steps.do(name, rest)
            steps.run([*steps.entrypoint, *arguments.command])
        except subprocess.CalledProcessError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
