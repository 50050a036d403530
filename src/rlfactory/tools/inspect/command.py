"""`rlfactory inspect`: a page with what training changed inside a language model."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlfactory.config.schema.targets import locate
from rlfactory.model.causal_lm import CausalLM
from rlfactory.model.weight_sets import REFERENCE
from rlfactory.report.page import template
from rlfactory.run.atomic_write import write_json, write_text
from rlfactory.run.folder import RunFolder
from rlfactory.tools.inspect import figures
from rlfactory.tools.inspect.analysis import Survey, survey
from rlfactory.tools.inspect.attribution import block_names, by_block, likelier, part_names
from rlfactory.tools.inspect.figures import factor
from rlfactory.tools.inspect.hooked_model import END, InspectionError, token_name
from rlfactory.tools.restore import located_config, restored_run
from rlfactory.utils.console import number

_SAMPLES = 3  # how many of the best and of the worst are shown
NO_DIRECTION = "No two samples of a prompt differ in reward in the base, so there is no direction."


def contents(survey: Survey, tokenizer: Any) -> dict[str, Any]:
    """All numbers of the figures, by name."""
    blocks = block_names(survey.layers)
    base, tuned = (by_block(parts, survey.layers).T.tolist() for parts in survey.attributions())
    change = likelier(survey.base.lens, survey.tuned.lens)
    tokens = [
        {
            "token": token_name(tokenizer, token),
            "id": token,
            "base": float(survey.probability[0, token]),
            "tuned": float(survey.probability[1, token]),
            "lens": change[:, k].tolist(),
            "base_parts": dict(zip(blocks, base[k], strict=True)),
            "tuned_parts": dict(zip(blocks, tuned[k], strict=True)),
        }
        for k, token in enumerate(survey.ids.tolist())
    ]
    half, direction = len(tokens) // 2, _direction(survey, tokenizer)
    shown = {"direction": direction, "samples": samples(survey, tokenizer)}
    return {"rose": tokens[:half], "fell": tokens[half:], **shown}


def _direction(survey: Survey, tokenizer: Any) -> dict[str, Any] | None:
    if (view := survey.direction) is None:
        return None
    parts = part_names(survey.layers, survey.heads)
    return {
        "shift": view.change.difference,
        "low": view.change.low,
        "high": view.change.high,
        "prompts": view.change.count,
        "separation": None if view.separation != view.separation else view.separation,
        "for": [token_name(tokenizer, i) for i in view.up.tolist()],
        "against": [token_name(tokenizer, i) for i in view.down.tolist()],
        "gap_parts": dict(zip(parts, view.gap.tolist(), strict=True)),
        "shift_parts": dict(zip(parts, view.shift.tolist(), strict=True)),
    }


def samples(survey: Survey, tokenizer: Any) -> list[dict[str, Any]]:
    """The best, then the worst samples of the base, each with its tokens.

    A token has its text and `change`: log2 of the factor by which the tuned network makes it
    likelier than the base, at its place in the text.
    """
    known = [i for i, score in enumerate(survey.scores.tolist()) if score == score]
    order = sorted(known, key=lambda i: -float(survey.scores[i]))
    best = order[:_SAMPLES]
    worst = [i for i in order[::-1][:_SAMPLES] if i not in best]
    kinds = [*(("best", i) for i in best), *(("worst", i) for i in worst)]
    return [{"kind": kind, **_sample(survey, tokenizer, i)} for kind, i in kinds]


def _sample(survey: Survey, tokenizer: Any, i: int) -> dict[str, Any]:
    ids, end = survey.texts.ids[i], int(survey.texts.ends[i].nonzero())
    change = (survey.tuned.next - survey.base.next)[survey.base.sample == i, -1] / math.log(2)
    # without tokens that end a text or fill it up
    prompt = [token for token in ids[: end + 1].tolist() if token != tokenizer.eos_token_id]
    read = ids[survey.texts.read[i]].tolist()
    return {
        "score": float(survey.scores[i]),
        "prompt": "".join(tokenizer.decode([token]) for token in prompt),
        "tokens": [
            {"text": END if t == tokenizer.eos_token_id else tokenizer.decode([t]), "change": c}
            for t, c in zip(read, change.tolist(), strict=True)
        ],
    }


def page(found: dict[str, Any], title: str, subtitle: str, figures: Sequence[str]) -> str:
    """The HTML page of an inspection: samples as coloured text, tables, and the figures; `subtitle`
    says what good is.
    """
    reach = max((abs(t["change"]) for s in found["samples"] for t in s["tokens"]), default=1.0)
    functions = {"factor": factor, "number": number, "largest": largest, "moved": moved}
    shown = {"title": title, "subtitle": subtitle, "no_direction": NO_DIRECTION}
    html = template("inspect.html")
    return html.render(found, reach=reach or 1.0, figures=figures, **functions, **shown)


def moved(token: dict[str, Any]) -> dict[str, float]:
    """By how much each part of the network moved a token's logit."""
    return {part: token["tuned_parts"][part] - old for part, old in token["base_parts"].items()}


def largest(parts: dict[str, float], count: int) -> str:
    """The parts with the largest numbers, in words."""
    order = sorted(parts, key=lambda name: -abs(parts[name]))[:count]
    return ", ".join(f"{name} {number(parts[name], sign=True)}" for name in order)


def inspect(
    path: Path, weights: str, prompts: int, best: bool, moved: Mapping[str, str] | None = None
) -> None:
    """Compare a run's weights with those that it started from; writes to its folder `inspect`.

    The texts are written to the first `prompts` of the evaluation, by the weights that it started
    from. For the other arguments see `tools.sample.sample`.
    """
    config = located_config(path, moved)
    if locate(config["model"]["_target_"], "model").media != "texts":
        message = f"{path} trained an image generator; only language models can be inspected"
        raise InspectionError(message)
    # float32 throughout: rounded to half precision, a network's parts don't sum to its logits
    config = {**config, "precision": {"_target_": config["precision"]["_target_"]}}
    with restored_run(path, config, best, REFERENCE) as (components, evaluator):
        model, reward = components.model, components.reward
        if not isinstance(model, CausalLM) or model.reads_pictures:
            raise InspectionError(f"{type(model).__name__} can't be inspected, only model=gpt2 can")
        held_out, seed = components.prompts.held_out(prompts), evaluator.seed
        sampler: Any = components.sampler  # of texts
        own = sampler.of_policy
        result = survey(model, own, reward, held_out, weights=weights, seed=seed)
    out, name = RunFolder(path).inspection, path.absolute().name
    out.mkdir(exist_ok=True)
    for old in out.glob("*.png"):
        old.unlink()  # a figure of an earlier inspection that this one does not draw
    subtitle = f"{name}; good is a high {reward.main}, the score that the run's reward gives"
    figures.draw_lens(result, model.tokenizer, out / "lens.png", subtitle)
    figures.draw_attribution(result, model.tokenizer, out / "attribution.png", subtitle)
    if result.direction is None:
        print(NO_DIRECTION)
    else:
        figures.draw_direction(result, out / "direction.png", subtitle)
    found = contents(result, model.tokenizer)
    write_json(out / "inspect.json", found)
    drawn = ["lens", "attribution", *(["direction"] if result.direction is not None else [])]
    write_text(out / "inspect.html", page(found, name, subtitle, drawn))
    print(f"figures and texts: {out / 'inspect.html'}; numbers: {out / 'inspect.json'}")
