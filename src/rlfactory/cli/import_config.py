"""`rlfactory import FILE`: another library's configuration as a command."""

import argparse
from collections.abc import Sequence


def import_config(words: Sequence[str]) -> int:
    """Print the command that is equivalent to a configuration file of another library."""
    from rlfactory.config.peers.files import translate_file

    arguments = import_parser().parse_args(words)
    print(translate_file(arguments.file, arguments.gpus).text(arguments.file))
    return 0


def import_parser() -> argparse.ArgumentParser:
    """The arguments of `rlfactory import`."""
    parser = argparse.ArgumentParser(
        prog="rlfactory import",
        description="Print the rlfactory command for a configuration file of Flow-Factory (YAML),"
        " flow_grpo or ddpo-pytorch (FILE.py:NAME, which is read and not run), or TRL (YAML, JSON)."
        " What has no counterpart is listed in comments.",
        epilog="example: rlfactory import config/grpo.py:pickscore_sd3",
    )
    parser.add_argument("file", metavar="FILE")
    parser.add_argument(
        "--gpus", type=int, default=1, help="GPUs that the file is for, where it does not say"
    )
    return parser
