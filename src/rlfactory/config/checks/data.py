"""Rules on prompts, on what rewards read of samples and prompts, and on functions of one's own."""

import ast
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rlfactory.config.checks.base import (
    Config,
    Traits,
    is_algorithm_mismatched,
    only,
    own_rewards,
    rewards_of,
)
from rlfactory.config.checks.chats import AS_TEXTS, are_user_messages
from rlfactory.config.checks.prompt_files import columns_of, known_rows, picture_fault
from rlfactory.config.problems import Problem, closest
from rlfactory.config.prompt_data import folder_of_prompts, nearest_file
from rlfactory.config.schema.static_names import TargetError, defined, module_file
from rlfactory.config.words import typed_value
from rlfactory.model.pipelines.local_models import image_size, is_offline
from rlfactory.prompts.ops.chat import COMPLETION, MESSAGES, reply_text
from rlfactory.prompts.ops.prompt_features import FEATURES
from rlfactory.prompts.ops.row_forms import UNPAIRED, is_missing, is_unpaired
from rlfactory.utils.current_folder import find_source
from rlfactory.utils.live_objects import is_reference


def require_matching_media(config: Config, traits: Traits) -> Iterator[Problem]:
    """Every reward, also a part or one of evaluations, scores what the model generates.

    One of images scores frames of videos.
    """
    generated = traits["model"].get("media")
    fitting = {generated, None, "images"} if generated == "videos" else {generated, None}
    for key, _, reward_traits in rewards_of(config, traits):
        scored = reward_traits.get("media")
        if generated and scored not in fitting:
            message = f"this reward scores {scored}, and the model makes {generated}"
            yield Problem(key, message, _other_reward(config, traits, key))


def require_reward(config: Config, traits: Traits) -> Iterator[Problem]:
    """No reward at all is for algorithms on data, and nothing reads its scores."""
    for key, _, own in rewards_of(config, traits):
        if own.get("gives_scores") is False and key != "reward":
            message = "scores nothing, and stands alone; leave it out"
            yield Problem(key, message, _other_reward(config, traits, key))
    if traits["reward"].get("gives_scores") is not False:
        return
    if traits["algo"].get("samples_from") != "data":
        message = "is none, and this algorithm learns from the scores of samples; choose one"
        yield Problem("reward", message, f"reward={plain_reward(traits)}")
    else:
        yield from only(config, {"stop.reward": None}, "there is no reward (reward=none)")


def require_metadata(config: Config, traits: Traits) -> Iterator[Problem]:
    """Prompts bring the metadata that each reward reads, and the columns that its options name."""
    rows, provided = known_rows(config, traits), columns_of(config, traits)
    for key, node, own in own_rewards(config, traits):
        required = own.get("metadata") or ()
        if missing := [name for name in required if provided is not None and name not in provided]:
            columns = " and ".join(missing)
            message = f"reads {columns} of each prompt, and these prompts have no such metadata"
            yield Problem(key, message, _other_reward(config, traits, key))
        for option in own.get("metadata_options") or ():
            column, place = node.get(option), f"{key}.{option}"
            if column is not None and provided is not None and column not in provided:
                advice = "name the one that has them, or choose another reward"
                other = "prompts=arithmetic" if column == "answer" else "rlfactory list reward"
                yield _no_column(config, place, column, provided, advice, other)
            elif column is not None and rows is not None:
                lacking = (at for at, row in rows.placed if is_missing(row.get(column)))
                if at := next(lacking, None):
                    yield _empty_cell(config, place, column, f"empty in {at}")


def _empty_cell(config: Config, key: str, column: str, fault: str) -> Problem:
    """A row that lacks what is needed of it: fill it in, or leave such rows out."""
    skipped = config["prompts"].get("skip_empty") or ()
    fix = f"prompts.skip_empty={typed_value([*skipped, column])}"
    return Problem(key, f"is {column}, which is {fault}", "" if column in skipped else fix)


def _no_column(
    config: Config, key: str, column: str, provided: Sequence[str], advice: str, otherwise: str
) -> Problem:
    """A column that prompts lack. A key that ends in one of `ANY` takes any other."""
    others = [name for name in provided if name != config["prompts"].get("column", "prompt")]
    has = f"; they have {', '.join(others)}" if others else ""
    guess = closest(column, others)
    if guess is None and key.endswith(ANY):
        guess = next(iter(others), None)
    message = f"is {column}, and these prompts have no such column{has}; {advice}"
    return Problem(key, message, f"{key}={guess}" if guess else otherwise)


ANY = (".answer_column", "algo.column")
"""Keys whose column may hold any text; what others name has a form of its own."""
COMPLETIONS = ("column", "chosen", "rejected")
"""Keys of `algo` that name a column of completions, or of images."""
ONLINE = "algo=diffusion_dpo"
"""Learns from pairs of the policy's own samples."""


def require_completions(config: Config, traits: Traits) -> Iterator[Problem]:
    """Prompts bring the columns of completions that an algorithm on data learns from."""
    if traits["algo"].get("samples_from") != "data" or is_algorithm_mismatched(traits):
        return
    if traits["model"].get("media") == "videos":
        message = "learns from images of the data, and this model makes videos"
        yield Problem("algo", message, ONLINE)
        return
    keys = [key for key in COMPLETIONS if config["algo"].get(key) is not None]
    problems = [problem for key in keys for problem in _missing_column(config, traits, key)]
    yield from problems
    if problems or not traits["algo"].get("learns_from_pairs"):
        return
    rows = known_rows(config, traits)
    chosen, rejected = config["algo"]["chosen"], config["algo"]["rejected"]
    for where, row in rows.placed if rows is not None else ():
        if row.get(chosen) == row.get(rejected):
            message = f"is {rejected}, which in {where} is equal to {chosen}"
            yield Problem("algo.rejected", f"{message}; a pair must differ: remove this row")
            return


def _missing_column(config: Config, traits: Traits, key: str) -> Iterator[Problem]:
    """The column that `algo.KEY` names is not there, or has no text in some row."""
    column, are_images = config["algo"][key], traits["model"].get("media") == "images"
    rows = known_rows(config, traits)
    if rows is not None and rows.rows and is_unpaired(rows.rows[0]):
        yield Problem("algo", f"{rows.placed[0][0]} {UNPAIRED}")
        return
    provided = columns_of(config, traits)
    if provided is not None and column not in provided:
        if column == COMPLETION and MESSAGES in provided:
            message = f"is {column}, and no conversation ends with an assistant's message to learn"
            problem = Problem(f"algo.{key}", message)
            if rows is not None and any(type(text) is str for text in rows.texts[:1]):
                message = f"is {column}, and these prompts have {MESSAGES} beside their texts"
                problem = Problem(f"algo.{key}", message, f"prompts.column={MESSAGES}")
            yield problem
            return
        # without a column of completions, the prompts are whole texts
        other = "algo.column=null" if key == "column" else ONLINE if are_images else ""
        advice = "data come by prompts=file or prompts=datasets"
        problem = _no_column(config, f"algo.{key}", column, provided, advice, other)
        are_texts = problem.fix != "algo.column=null" or not are_user_messages(config)
        yield problem if are_texts else replace(problem, instead=(problem.fix, AS_TEXTS))
        return
    for where, row in rows.placed if rows is not None else ():
        if are_images:
            place, size = folder_of_prompts(config), image_size(config["model"])
            if found := picture_fault(row, column, place, size):
                yield Problem(f"algo.{key}", f"is {column}, and {where}: {found[0]}", found[1])
                return
            continue
        try:
            text = reply_text(row.get(column))
        except ValueError as error:
            yield Problem(f"algo.{key}", f"is {column}, and in {where} {error}")
            return
        if is_missing(text):
            yield _empty_cell(config, f"algo.{key}", column, f"empty, {text!r}, in {where}")
            return
        if not isinstance(text, str):
            message = f"is {column}, which is {text!r:.60} in {where}; it must be a text"
            yield Problem(f"algo.{key}", message)
            return


def require_prompt_feature(config: Config, traits: Traits) -> Iterator[Problem]:
    """Prompts have what a reward looks for in them: a quoted word, objects that it knows."""
    rows = known_rows(config, traits)
    for key, _, reward_traits in own_rewards(config, traits):
        feature = reward_traits.get("prompt_feature")
        required = {*(reward_traits.get("metadata") or ())}
        if feature is None or (rows is not None and not required <= {*(rows.columns or ())}):
            continue  # no metadata at all is a problem of its own
        what, option, fault_of = FEATURES[feature]
        fault = None
        if rows is not None:
            column = str(config["prompts"].get("column", "prompt"))
            faults = (fault_of(str(row.get(column)), row) for row in rows.rows)
            fault = next((found for found in faults if found), None)
        elif (having := traits["prompts"].get("features")) is not None and feature not in having:
            fault = "these prompts have none"
        if fault:
            # a file of prompts is what the user wants scored, so the reward has to give way
            keeps = rows is not None or key != "reward"
            fix = _other_reward(config, traits, key) if keeps else f"prompts={option}"
            yield Problem(key, f"needs {what} in each prompt, and {fault}", fix)


def _other_reward(config: Config, traits: Traits, key: str) -> str:
    """An override by which nothing of these prompts is read; empty for a part of a reward."""
    if key == "reward":
        return f"reward={plain_reward(traits)}"
    group, _, name = key.partition(".parts.")
    kept = [other for other in config[group].get("of", []) if other != name]
    return f"{group}.of=[{','.join(kept)}]" if kept or group == "eval_rewards" else ""


def plain_reward(traits: Traits) -> str:
    """An option of `reward` that fits any prompts of a model."""
    if traits["model"].get("media") == "texts":
        return "sentiment"
    return "compressibility" if is_offline() else "clipscore"


def require_functions(config: Config, traits: Traits) -> Iterator[Problem]:
    """The function that a reward calls is defined where it is named.

    Files are read, not imported: a plan runs none of the user's code. The reward checks what its
    function takes, before the model is loaded.
    """
    for key, node, _ in rewards_of(config, traits):
        spec = node.get("function")
        if isinstance(spec, str) and spec != "???" and not is_reference(spec):
            for message, better in _function_faults(spec):
                fix = f"{key}.function={better}" if better else ""
                yield Problem(f"{key}.function", f"{spec}: {message}", fix)


def _function_faults(spec: str) -> Iterator[tuple[str, str]]:
    """Faults of `MODULE:NAME`, and what may be meant."""
    place, _, name = spec.rpartition(":")
    if not place:
        place, name = (name, "") if name.endswith(".py") else name.rpartition(".")[::2]
    try:
        path = Path(place).expanduser() if place.endswith(".py") else module_file(place)
        body = ast.parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        near = nearest_file(path)
        yield f"there is no file {place}", f"{near}:{name}" if near and name else ""
        return
    except SyntaxError as error:
        yield f"{place} is no Python: {error.msg} in line {error.lineno}", ""
        return
    except (TargetError, ImportError, OSError, ValueError):
        if not _is_compiled(place):
            wanted = "package.module:name or path/to/file.py:name"
            yield f"there is no module {place or name} to import; allowed is {wanted}", ""
        return
    known = [n.name for n in body.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    known = [other for other in known if not other.startswith("_")]
    if not name or not {name, "*"} & _names_in(body):
        has = f"it has {', '.join(known) or 'no function'}"
        guess = closest(name, known) or next(iter(known), None)
        better = f"{place}:{guess}" if guess else ""
        yield f"{place} has no {name}; {has}" if name else f"names no function; {has}", better
    elif ":" not in spec:
        yield "is neither package.module:name nor path/to/file.py:name", f"{place}:{name}"


def _names_in(body: ast.Module) -> set[str]:
    """The names that a file defines or imports, also inside an `if`."""
    items = [*ast.walk(body)]
    imported = {a.asname or a.name.partition(".")[0] for a in items if isinstance(a, ast.alias)}
    return imported.union(*(defined(item) for item in items if isinstance(item, ast.stmt)))


def _is_compiled(module: str) -> bool:
    """Whether the package of a module without source is there; nothing is imported."""
    top = module.partition(".")[0]
    with suppress(ImportError, ValueError):
        return bool(top) and (top in sys.builtin_module_names or find_source(top) is not None)
    return False
