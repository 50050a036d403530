"""Import paths that no configuration may name, wherever a configuration names one."""

import random

from faulty.bad.case import Case, misspelt, planned
from faulty.bad.known import config, context

from rlfactory.config.schema.root import COMPONENTS

FORBIDDEN = (
    *("os.system", "os.remove", "posix.system", "subprocess.Popen", "subprocess.run"),
    *("builtins.eval", "builtins.exec", "builtins.open", "shutil.rmtree", "pickle.loads"),
    *("importlib.import_module", "runpy.run_path", "pathlib.Path", "ctypes.CDLL", "socket.socket"),
    *("torch.load", "torch.hub.load", "torch.jit.load", "torch.save", "torch.optimizer.Adam"),
    *(
        "rlfactory.config.schema.targets.instantiate",
        "rlfactory.config.schema.targets.locate",
        "rlfactory.cli.app.main",
    ),
    *(
        "rlfactory.run.folder.RunFolder",
        "rlfactory.train.process.worker.run_main_process",
        "rlfactory.reward",
        "rlfactory",
    ),
    *("rlfactoryx.reward.shapes.Shapes", "hydra.utils.instantiate", "yaml.unsafe_load"),
    *("numpy.load", "joblib.load", "webbrowser.open", "code.interact", ".os.system", "..x"),
    *("os", "system", "os..system", "os.system()", "/bin/sh", "rlfactory.reward.shapes:Shapes"),
)
NO_TEXT = ("null", "7", "[os.system]", "{a:os.system}", "true", "''", "")
NESTED = (
    "regularizer=kl_v regularizer.coefficient",
    "model=tiny_gpt2 regularizer.coefficient",
    "algo=awm regularizer=kl_awm regularizer.terms.old",
    "algo=awm regularizer=kl_awm regularizer.terms.old.coefficient",
    "reward=pickscore_rank reward.reward",
    "reward=combine reward.of=[mine] +reward.parts.mine",
    "reward=combine reward.of=[shapes] +reward.parts.shapes",
    "eval_rewards.of=[mine] +eval_rewards.parts.mine",
)


def forbidden(rng: random.Random) -> Case:
    """A path outside of what may be named."""
    words = [*context(rng)]
    key, target = rng.choice(COMPONENTS), rng.choice(FORBIDDEN)
    if rng.random() < 0.4:
        *words, key = rng.choice(NESTED).split(" ")
    typed = f"{key}._target_={_quoted(target)}"
    if rng.random() < 0.2 and not key.startswith("+"):
        typed = f"++{key}={{_target_:{_quoted(target)},command:id}}"
    return planned(rng, "a target that may not be named", [*words, typed], key.lstrip("+"))


def no_text(rng: random.Random) -> Case:
    """What is no import path at all."""
    words = context(rng)
    key = rng.choice(COMPONENTS)
    typed = rng.choice([f"{key}._target_={rng.choice(NO_TEXT)}", f"~{key}._target_"])
    return planned(rng, "no import path", [*words, typed], key)


def not_there(rng: random.Random) -> Case:
    """A slip in a path that may be named."""
    words = context(rng)
    values = config(words)
    assert values is not None
    key = rng.choice(COMPONENTS)
    parts = values[key]["_target_"].split(".")
    place = rng.randrange(1, len(parts))
    parts[place] = misspelt(rng, parts[place], [])
    typed = [*words, f"{key}._target_={'.'.join(parts)}"]
    return planned(rng, "a target that isn't there", typed, f"{key}._target_", f"{key}.")


def trusted_in_vain(rng: random.Random) -> Case:
    """Trust opens whole packages, and of ours nothing else."""
    target, trust = rng.choice(
        [
            ("rlfactory.config.schema.targets.locate", "rlfactory"),
            ("rlfactory.cli.app.main", "rlfactory"),
            ("os.system", "o"),
            ("mineral.Reward", "mine"),
            ("nopackageofthisname.Reward", "nopackageofthisname"),
        ]
    )
    words = [f"trust=[{trust}]", f"reward._target_={target}"]
    return planned(rng, "trust that opens nothing", words, "reward._target_")


def _quoted(target: str) -> str:
    return target if target.replace(".", "a").replace("_", "a").isalnum() else f"'{target}'"
