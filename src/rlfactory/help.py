"""What `rlfactory --help` prints: one line a group, and how to begin."""

from textwrap import wrap

from rlfactory._hydra import options
from rlfactory.settings import GROUPS


def show_help() -> int:
    """One line a group, and how to begin."""
    print("rlfactory: reinforcement learning for image generators and language models\n")
    print("  rlfactory [GROUP=OPTION ...] [KEY=VALUE ...]   train")
    print("  rlfactory check|list|explain|sample|...        see below; -m for a multirun\n")
    for group, question in GROUPS.items():
        text = f"{question}: {', '.join(options(group))}"
        print(f"  {group:<12} {_wrapped(text)}")
    print("\nexamples")
    print("  rlfactory                                      train the default on this machine")
    print("  rlfactory algo=grpo reward=compressibility     choose; companions follow")
    print("  rlfactory -m algo=grpo,nft seed=0,1            four runs, one after another")
    print("\n  rlfactory check [OVERRIDES]                    the plan alone")
    print("  rlfactory list [GROUP]                         options, a line each")
    print("  rlfactory explain KEY [OVERRIDES]              where a value comes from")
    print("  rlfactory resume RUN [--until N]               go on from its newest checkpoint")
    print("  rlfactory sample RUN --prompt TEXT             samples with a run's weights")
    print("  rlfactory evaluate RUN [OVERRIDES]             scores of a run's weights")
    print("  rlfactory report PATH... [--out FOLDER]        runs beside the paper's table")
    print("  rlfactory compare RUN RUN                      two runs side by side")
    print("  rlfactory inspect RUN                          inside a tuned language model")
    print("  rlfactory export RUN --to PATH [--merge]       for diffusers, transformers and PEFT")
    print("  rlfactory serve reward=NAME [host= port= ...]  a reward for other machines' runs")
    print("  rlfactory sweep [NAME] [size=tiny] [--plan]    the runs of a published table")
    print("  rlfactory sync RUN... [logger=wandb]           tell a logger all that it missed")
    print("  rlfactory sample|export|... RUN --best         its best checkpoint, not its last")
    print("  rlfactory --cfg job [OVERRIDES]                the whole configuration")
    print('  eval "$(rlfactory -sc install=bash)"           completion; zsh and fish too')
    return 0


def _wrapped(text: str) -> str:
    """Two lines of it at most, the second below the first."""
    lines = wrap(text, 92, max_lines=2, placeholder=" ...", break_on_hyphens=False)
    return f"\n{'':<15}".join(lines)
