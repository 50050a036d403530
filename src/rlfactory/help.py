"""What `rlfactory --help` prints: one line a group, and how to begin."""

from rlfactory._hydra import options
from rlfactory.settings import GROUPS


def show_help() -> int:
    """One line a group, and how to begin."""
    print("rlfactory: reinforcement learning for image generators and language models\n")
    print("  rlfactory [GROUP=OPTION ...] [KEY=VALUE ...]   train")
    print("  rlfactory check|list|explain|sample|...        see below; -m for a multirun\n")
    for group, question in GROUPS.items():
        print(f"  {group:<12} {question}: {_fitting(list(options(group)), 88 - len(question))}")
    print("\nexamples")
    print("  rlfactory                                      train the default on this machine")
    print("  rlfactory algo=grpo reward=compressibility     choose; companions follow")
    print("  rlfactory -m algo=grpo,nft seed=0,1            four runs, one after another")
    print("\n  rlfactory check [OVERRIDES]                    the plan alone")
    print("  rlfactory list [GROUP]                         options, a line each")
    print("  rlfactory explain KEY [OVERRIDES]              where a value comes from")
    print("  rlfactory sample RUN --prompt TEXT             samples with a run's weights")
    print("  rlfactory evaluate RUN [OVERRIDES]             scores of a run's weights")
    print("  rlfactory inspect RUN                          inside a tuned language model")
    print("  rlfactory export RUN --to PATH [--merge]       for diffusers, transformers and PEFT")
    print("  rlfactory sample|export|... RUN --best         its best checkpoint, not its last")
    print("  rlfactory --cfg job [OVERRIDES]                the whole configuration")
    print('  eval "$(rlfactory -sc install=bash)"           completion; zsh and fish too')
    return 0


def _fitting(names: list[str], width: int) -> str:
    """As many names as there is room for."""
    kept = len(names)
    while len(", ".join(names[:kept])) > width:
        kept -= 1
    return ", ".join([*names[:kept], *(["..."] if kept < len(names) else [])])
