"""Prompts as people type them, for rewards of preference: a subject in a scene, in a style."""

from rlfactory.prompts.base import Prompt, PromptError
from rlfactory.prompts.ops.held_out import is_held_out
from rlfactory.prompts.ops.prompt_list import PromptList, shipped_texts

TEXTS = shipped_texts("preferences")
STYLES = TEXTS["styles"]
"""13, prime to the numbers of subjects and scenes, so that each meets many styles."""
THEMES = (
    ("people", "deeds"),
    ("animals", "habits"),
    ("places", "lights"),
    ("things", "arrangements"),
)
"""Subjects, and the scenes of each."""


class Preferences(PromptList):
    """Each subject in each of its scenes, about 1,500, in one of the `styles`.

    A quarter of the prompts, by a hash of the text, is held out. PromptError where `styles` is
    empty or holds a blank text.
    """

    metadata = ()
    separate = True
    features = ()
    media = "images"

    def __init__(self, *, styles: list[str] | None = None) -> None:
        """
        Args:
            styles: A list of styles, [an oil painting, pixel art]; null: the 13 that ship.
        """
        styles = list(STYLES) if styles is None else list(dict.fromkeys(styles))
        if not styles or not all(style.strip() for style in styles):
            raise PromptError("prompts.styles must be texts, at least one, and none of them blank")
        pairs = [
            f"{subject}, {scene}"
            for subjects, scenes in THEMES
            for subject in TEXTS[subjects]
            for scene in TEXTS[scenes]
        ]
        texts = [f"{text}, {styles[i % len(styles)]}" for i, text in enumerate(pairs)]
        sides = ([t for t in texts if is_held_out(t) == held] for held in (False, True))
        super().__init__(*([Prompt(text, {}) for text in side] for side in sides))
