"""`rlfactory --help`: the groups with their options, examples and commands; and COMMAND --help."""

from textwrap import wrap
from typing import Any

from rlfactory.cli.arguments import command_table
from rlfactory.cli.run_commands import DECODING_KEYS, EVALUATION_KEYS
from rlfactory.config.options import options
from rlfactory.config.schema.root import GROUPS

OVERVIEW = """\
rlfactory: reinforcement learning for image generators and language models

  rlfactory [train] [GROUP=OPTION ...] [KEY=VALUE ...]   train
  rlfactory check|list|explain|sample|...        see below; -m for a multirun

{groups}

examples
  rlfactory                                      train the default on this machine
  rlfactory algo=grpo reward=compressibility     choose; what goes with them follows
  rlfactory -m algo=grpo,nft seed=0,1            four runs, one after another

  rlfactory check [-m] [OVERRIDES]               the plan alone; -m: of every job
  rlfactory estimate [OVERRIDES]                 memory, FLOPs and seconds, counted
  rlfactory list [GROUP [OPTION]]                options, a line each
  rlfactory explain KEY [OVERRIDES]              what a key means, where it is set
  rlfactory import FILE                          another library's file as a command
  rlfactory resume RUN [--until N]               resume, or extend to N iterations
  rlfactory verify RUN                           is a run what its folder says?
  rlfactory sample RUN --prompt TEXT             samples with a run's weights
  rlfactory evaluate RUN [OVERRIDES]             scores of a run's weights
  rlfactory report PATH... [--out FOLDER]        runs beside the paper's table
  rlfactory compare RUN RUN                      two runs side by side
  rlfactory inspect RUN                          inside a tuned language model
  rlfactory sample|... RUN model.path=FOLDER     where its model was moved to
  rlfactory export RUN --to PATH [--merge]       for diffusers, transformers and PEFT
  rlfactory export RUN --push USER/NAME          to the Hugging Face hub, with a card
  rlfactory reward-model BASE --pairs FILE --to PATH  a reward model from preferences
  rlfactory serve reward=NAME [host= port= ...]  a reward for other machines' runs
  rlfactory sweep [NAME] [size=tiny] [--plan]    the runs of a published table
  rlfactory sync RUN... [logger=wandb]           send a logger all metrics that it lacks
  rlfactory sample|export|... RUN --best         its best checkpoint, not its last
  rlfactory COMMAND --help                       one command
  rlfactory --cfg job [OVERRIDES]                the whole configuration
  eval "$(rlfactory -sc install=bash)"           completion; zsh and fish too"""


def show_help(command: str = "") -> int:
    """Print the help of a command; without one the groups, examples and commands."""
    if (row := command_table()["words"].get(command)) is not None:
        return _show_command(row)
    lines = {
        group: f"{question}: {', '.join(options(group))}" for group, question in GROUPS.items()
    }
    groups = (f"  {group:<12} {_wrapped(line)}" for group, line in lines.items())
    print(OVERVIEW.format(groups="\n".join(groups)))
    return 0


def _show_command(row: dict[str, Any]) -> int:
    keys = {"evaluation": ", ".join(EVALUATION_KEYS), "decoding": ", ".join(DECODING_KEYS)}
    print(f"usage: rlfactory {row['usage']}\n")
    print("\n".join(wrap(row["purpose"].format(**keys), 96)))
    print("\nexamples")
    width = max(map(len, row["examples"]))
    for example, meaning in row["examples"].items():
        print(f"  rlfactory {example:<{width}}   {meaning}")
    return 0


def _wrapped(text: str) -> str:
    """The text wrapped to at most two lines, the second one aligned with the first."""
    lines = wrap(text, 92, max_lines=2, placeholder=" ...", break_on_hyphens=False)
    return f"\n{'':<15}".join(lines)
