"""A name that other libraries use for an option of this one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlfactory.config.problems import override_key

Words = tuple[str, ...]
Resolve = Callable[[str, Mapping[str, Any]], list[Words]]


@dataclass(frozen=True)
class Name:
    """A name that other libraries use for an option.

    Attributes:
        name: as it is typed there.
        peers: the libraries that use it.
        words: what to type here, `{value}` for the typed value; empty where nothing is typed.
        caveat: what differs, or why nothing is typed.
        bases: words that bring the key where it is not there, in order of preference.
        choices: what to type for particular values, in lower case, in place of `words`.
        resolve: what to type as a function of the value and of the configuration, most fitting
            first; `words` then only describes it.
    """

    name: str
    peers: tuple[str, ...]
    words: str
    caveat: str = ""
    bases: tuple[str, ...] = ()
    choices: Mapping[str, str] = field(default_factory=dict)
    resolve: Resolve | None = None

    def candidates(self, value: str, config: Mapping[str, Any]) -> list[Words]:
        """What to type for a value, most fitting first."""
        if self.resolve is not None:
            return self.resolve(value, config)
        chosen = self.choices.get(value.lower(), self.words)
        words = tuple(word.replace("{value}", value) for word in chosen.split())
        own = {override_key(word) for word in words}
        bases = [[w for w in base.split() if override_key(w) not in own] for base in self.bases]
        return [tuple([*base, *words]) for base in ([], *bases)]

    def meaning(self) -> str:
        """What to type, for a reader."""
        if not self.words and not self.choices:
            return ""
        keys = [word.removesuffix("={value}") for word in self.words.split()]
        shown = {" ".join(keys): None} if keys else {}
        for words in self.choices.values():
            if words.partition("=")[0] not in shown:  # a key alone says it of all values
                shown[words or "nothing"] = None
        return " or ".join(shown)


TRL, HF, FF = ("TRL",), ("HF Trainer", "TRL"), ("Flow-Factory",)
FLOW_GRPO, DDPO, PEFT = ("flow_grpo",), ("ddpo-pytorch", "flow_grpo"), ("PEFT",)
IMAGES = ("diffusers", "Flow-Factory")
TEXTS = ("model=tiny_gpt2",)
STEPWISE = ("algo=grpo",)
NOT_HERE = "has no counterpart here"
