"""From a run's parts to the files of a look inside."""

from collections.abc import Sequence

from rlfactory.inspection.errors import InspectionError
from rlfactory.inspection.figures import draw_attribution, draw_direction, draw_lens, draw_samples
from rlfactory.inspection.report import NO_DIRECTION, contents, write_report
from rlfactory.inspection.survey import survey
from rlfactory.model.causal_lm import CausalLM
from rlfactory.parts import Parts
from rlfactory.prompts.base import Prompt
from rlfactory.run.folder import RunFolder


def look_inside(
    folder: RunFolder, parts: Parts, prompts: Sequence[Prompt], weights: str, seed: int
) -> None:
    """Survey the weight set `weights`, draw and write what was found, and say where."""
    model = parts.model
    if not isinstance(model, CausalLM):
        raise InspectionError(f"{type(model).__name__} can't be inspected, only model=gpt2 can")
    found = survey(model, parts.sampler, parts.reward, prompts, weights=weights, seed=seed)
    place = folder.inspection
    place.mkdir(exist_ok=True)
    for old in place.glob("*.png"):
        old.unlink()  # a figure that this look does not draw would be another's
    draw_lens(found, model.tokenizer, place / "lens.png")
    draw_samples(found, model.tokenizer, place / "samples.png")
    draw_attribution(found, model.tokenizer, place / "attribution.png")
    if found.direction is None:
        print(NO_DIRECTION)
    else:
        draw_direction(found.direction, place / "direction.png")
    write_report(contents(found, model.tokenizer), folder.path.absolute().name, place)
    print(f"figures and numbers: {place / 'inspect.md'}")
