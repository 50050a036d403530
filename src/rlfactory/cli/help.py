"""`rlfactory --help`: the groups with their options, examples and commands; and COMMAND --help."""

from collections.abc import Mapping
from dataclasses import dataclass
from textwrap import wrap

from rlfactory.cli.run_commands import DECODING_KEYS, EVALUATION_KEYS
from rlfactory.config.options import options
from rlfactory.config.schema.root import GROUPS


@dataclass(frozen=True)
class CommandHelp:
    """What `rlfactory COMMAND --help` prints of a command that takes words instead of flags."""

    usage: str
    purpose: str
    examples: tuple[tuple[str, str], ...]


COMMANDS: Mapping[str, CommandHelp] = {
    "check": CommandHelp(
        "check [OVERRIDES]",
        "Check an experiment and print its plan: choices, samples, updates and memory."
        " Nothing is written, torch is not imported, and every mistake is reported with a fix."
        " Exit code 2 if there is one.",
        (
            ("check algo=grpo reward=compressibility", "a plan"),
            ("check model=sd35 hardware.memory_gb=24", "will it fit?"),
            ("check experiment=peer/flow_grpo", "a published run"),
        ),
    ),
    "estimate": CommandHelp(
        "estimate [OVERRIDES]",
        "Count what a run takes: peak memory, FLOPs, kernels and seconds of each phase. The model"
        " is built without weights, and a batch and two micro-batches go through the engine on"
        " tensors that hold nothing; of any model, plug-ins too. Seconds are those of hardware.gpu,"
        " else of this CPU.",
        (
            ("estimate model=flux hardware.gpu=h100", "will it fit, and how long does it take?"),
            ("estimate memory=low", "what an option saves"),
        ),
    ),
    "list": CommandHelp(
        "list [GROUP [OPTION]]",
        "The options of all groups or of one, a line each; of one option, its file with a comment"
        " on each key. `list sweeps` has the published tables.",
        (
            ("list algo", "the algorithms"),
            ("list algo grpo", "one option, its keys and what it selects"),
            ("list sweeps", "the published tables"),
        ),
    ),
    "explain": CommandHelp(
        "explain KEY|GROUP|OPTION [OVERRIDES]",
        "What a key means, its type and default, its value, and each file and override that sets"
        " it. The last part of a key is enough; a group or an option is explained too.",
        (
            ("explain optimizer.lr", "a key"),
            ("explain every", "all keys of this name"),
            ("explain group_size model=sd35 algo=grpo", "where a value comes from"),
            ("explain algo=grpo", "an option"),
        ),
    ),
    "evaluate": CommandHelp(
        "evaluate RUN [--best] [OVERRIDES]",
        "Score a run's weights again, of its last checkpoint or (--best) its best. OVERRIDES are"
        f" those of {', '.join(EVALUATION_KEYS)}; of texts also {', '.join(DECODING_KEYS)}; and"
        " model.path=FOLDER where the model was moved. Writes an evaluation into the run folder.",
        (
            ("evaluate outputs/RUN evaluation.prompts=512", "more prompts"),
            ("evaluate outputs/RUN --best eval_rewards.of=[aesthetic]", "another score"),
            ("evaluate outputs/RUN dynamics.temperature=0", "the most likely tokens"),
            ("evaluate outputs/RUN reward=rewards.py:right", "a function of your own"),
        ),
    ),
    "serve": CommandHelp(
        "serve reward=NAME [host=HOST] [port=PORT] [OVERRIDES]",
        "Serve a reward over HTTP, for reward=remote of runs on other machines.",
        (("serve reward=pickscore port=8000", "then: reward=remote reward.url=http://HOST:8000"),),
    ),
    "sweep": CommandHelp(
        "sweep [NAME] [size=SIZE] [--plan] [OVERRIDES]",
        "Run the jobs of a published table that are not done yet; --plan prints them.",
        (
            ("sweep", "the tables"),
            ("sweep awm size=tiny --plan", "what would run"),
        ),
    ),
    "sync": CommandHelp(
        "sync RUN... [logger=NAME] [logger.KEY=VALUE]",
        "Send a logger everything that run folders recorded, for instance after a run without a"
        " network.",
        (("sync outputs/RUN logger=wandb", "a run that was recorded offline"),),
    ),
}


def show_help(command: str = "") -> int:
    """Print the help of a command; without one the groups, examples and commands."""
    if command in COMMANDS:
        return _show_command(COMMANDS[command])
    print("rlfactory: reinforcement learning for image generators and language models\n")
    print("  rlfactory [train] [GROUP=OPTION ...] [KEY=VALUE ...]   train")
    print("  rlfactory check|list|explain|sample|...        see below; -m for a multirun\n")
    for group, question in GROUPS.items():
        text = f"{question}: {', '.join(options(group))}"
        print(f"  {group:<12} {_wrapped(text)}")
    print("\nexamples")
    print("  rlfactory                                      train the default on this machine")
    print("  rlfactory algo=grpo reward=compressibility     choose; what goes with them follows")
    print("  rlfactory -m algo=grpo,nft seed=0,1            four runs, one after another")
    print("\n  rlfactory check [-m] [OVERRIDES]               the plan alone; -m: of every job")
    print("  rlfactory estimate [OVERRIDES]                 memory, FLOPs and seconds, counted")
    print("  rlfactory list [GROUP [OPTION]]                options, a line each")
    print("  rlfactory explain KEY [OVERRIDES]              what a key means, where it is set")
    print("  rlfactory import FILE                          another library's file as a command")
    print("  rlfactory resume RUN [--until N]               resume, or extend to N iterations")
    print("  rlfactory verify RUN                           is a run what its folder says?")
    print("  rlfactory sample RUN --prompt TEXT             samples with a run's weights")
    print("  rlfactory evaluate RUN [OVERRIDES]             scores of a run's weights")
    print("  rlfactory report PATH... [--out FOLDER]        runs beside the paper's table")
    print("  rlfactory compare RUN RUN                      two runs side by side")
    print("  rlfactory inspect RUN                          inside a tuned language model")
    print("  rlfactory sample|... RUN model.path=FOLDER     where its model was moved to")
    print("  rlfactory export RUN --to PATH [--merge]       for diffusers, transformers and PEFT")
    print("  rlfactory export RUN --push USER/NAME          to the Hugging Face hub, with a card")
    print("  rlfactory reward-model BASE --pairs FILE --to PATH  a reward model from preferences")
    print("  rlfactory serve reward=NAME [host= port= ...]  a reward for other machines' runs")
    print("  rlfactory sweep [NAME] [size=tiny] [--plan]    the runs of a published table")
    print(
        "  rlfactory sync RUN... [logger=wandb]           send a logger all metrics that it lacks"
    )
    print("  rlfactory sample|export|... RUN --best         its best checkpoint, not its last")
    print("  rlfactory COMMAND --help                       one command")
    print("  rlfactory --cfg job [OVERRIDES]                the whole configuration")
    print('  eval "$(rlfactory -sc install=bash)"           completion; zsh and fish too')
    return 0


def _show_command(command: CommandHelp) -> int:
    print(f"usage: rlfactory {command.usage}\n")
    print("\n".join(wrap(command.purpose, 96)))
    print("\nexamples")
    width = max(len(example) for example, _ in command.examples)
    for example, meaning in command.examples:
        print(f"  rlfactory {example:<{width}}   {meaning}")
    return 0


def _wrapped(text: str) -> str:
    """The text wrapped to at most two lines, the second one aligned with the first."""
    lines = wrap(text, 92, max_lines=2, placeholder=" ...", break_on_hyphens=False)
    return f"\n{'':<15}".join(lines)
