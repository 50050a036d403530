"""What a target takes, read from source."""

import importlib
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import yaml

import rlfactory
from rlfactory.algo.ops.noised_items import ForwardAlgorithm
from rlfactory.algo.ops.step_replay import StepAlgorithm
from rlfactory.config.schema.signature import (
    RUNTIME_ARGUMENTS,
    Parameter,
    constructor_parameters,
    live_signature,
    read_signature,
)
from rlfactory.config.schema.static_names import TargetError
from rlfactory.utils.types import Interval, TargetNode

Write = Callable[..., str]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes modules of a package of this test's own and returns the package's name."""
    name = f"package_{abs(hash(tmp_path))}"
    monkeypatch.syspath_prepend(tmp_path)

    def write(**modules: str) -> str:
        (tmp_path / name).mkdir()
        for module, text in {"__init__": "", **modules}.items():
            (tmp_path / name / f"{module}.py").write_text(f"import not_there\n{text}")
        return name

    return write


def kinds(target: str) -> dict[str, Any]:
    return {name: parameter.kind for name, parameter in read_signature(target).parameters.items()}


@pytest.mark.parametrize("name", ["AdamW", "SGD", "Adam", "RMSprop"])
def test_torchs_optimisers_as_inspect_sees_them(name: str) -> None:
    import torch

    parameters = inspect.signature(getattr(torch.optim, name)).parameters
    assert set(read_signature(f"torch.optim.{name}").parameters) == set(parameters) - {"params"}
    assert read_signature(f"torch.optim.{name}").parameters["lr"] == Parameter(
        float, required=False, default=parameters["lr"].default
    )


def test_defaults_of_positional_options_and_of_fields(package: Write) -> None:
    name = package(
        a="from dataclasses import dataclass, field\n"
        "class A:\n"
        "    def __init__(self, device, a, b=2, *, c=3, d=open): ...\n"
        "@dataclass\n"
        "class B:\n"
        "    x: int\n"
        "    y: int = 4\n"
        "    z: list[int] = field(default_factory=list)\n"
    )
    for target, expected in (("A", [..., 2, 3, ...]), ("B", [..., 4, ...])):
        found = read_signature(f"{name}.a.{target}").parameters.values()
        assert [parameter.default for parameter in found] == expected


def test_types(package: Write) -> None:
    name = package(
        a="from typing import *\nimport typing as t\n"
        "from rlfactory.utils.types import PositiveInt\n"
        "from .b import Mood\n"
        "class A:\n"
        "    def __init__(self, *, i: int, f: float = 1, s: str | None = None,\n"
        "        m: Mood = 'calm', l: list[Mood], o: Optional[bool], q: t.Literal['x'],\n"
        "        p: PositiveInt, n: 'int | None', r: Annotated[float, t.Interval(gt=0)],\n"
        "        u: Widget, w: Widget | float, x=3, d: dict[str, int], e: Sequence[int],\n"
        "        z: tuple[int, int]): ...\n",
        b="from typing import Literal\nMood = Literal['calm', 'wild']\n",
    )
    mood = Literal["calm", "wild"]
    assert kinds(f"{name}.a.A") == {
        "i": int,
        "f": float,
        "s": str | None,
        "m": mood,
        "l": list[mood],  # type: ignore[valid-type]
        "o": bool | None,
        "q": Literal["x"],
        "p": Annotated[int, Interval(ge=1), None],
        "n": int | None,
        "r": Annotated[float, Interval(gt=0), None],
        "u": Any,
        "w": float,
        "x": Any,
        "d": dict[str, int],
        "e": list[int],
        "z": list[Any],
    }


def test_an_abstract_class_is_made_of_a_component(package: Write) -> None:
    name = package(
        a="from abc import ABC\nfrom typing import Generic, Mapping, TypedDict\n"
        "class Part(ABC, Generic[int]): ...\nclass Options(TypedDict): ...\n"
        "class A:\n    def __init__(self, *, p: Part, o: Part | None, g: Part[int],\n"
        "        m: Mapping[str, Part], n: Mapping[str, Part[int]], t: Options): ...\n",
    )
    assert kinds(f"{name}.a.A") == {
        "p": TargetNode,
        "o": TargetNode | None,
        "g": TargetNode,
        "m": dict[str, TargetNode],
        "n": dict[str, TargetNode],
        "t": Any,
    }


def test_required_and_handed_over(package: Write) -> None:
    name = package(
        a="class A:\n    def __init__(self, device, k, j=1, *, a, b=2): ...\n"
        "def f(params, lr, *, c): ...\n"
        "def g(**anything): ...\n"
    )
    required = {n: p.required for n, p in read_signature(f"{name}.a.A").parameters.items()}
    assert required == {"k": True, "j": False, "a": True, "b": False}
    assert set(read_signature(f"{name}.a.f").parameters) == {"lr", "c"}
    assert read_signature(f"{name}.a.g").takes_any
    assert not read_signature(f"{name}.a.f").takes_any


def test_inheritance_across_modules(package: Write) -> None:
    name = package(
        base="class Base:\n    requires: str = 'nothing'\n    media = 'images'\n"
        "    def __init__(self, *, a: int): ...\n",
        middle="from . import base\nclass Middle(base.Base):\n    requires = 'tokens'\n",
        leaf="from .middle import Middle as M\nclass Leaf(M[int]):\n    media = 'texts'\n",
    )
    signature = read_signature(f"{name}.leaf.Leaf")
    assert set(signature.parameters) == {"a"}
    assert signature.class_constants == {"requires": "tokens", "media": "texts"}


def test_traits_that_are_names_of_constants(package: Write) -> None:
    name = package(
        weights="ONE, OLD = 'one', 'previous'\nEMA = make()\n",
        a="from .weights import OLD, EMA\nHERE: str = 'here'\n"
        "class A:\n    behaviour = OLD\n    place = HERE\n    average = EMA\n"
        "    keys = ('a', 'b')\n",
    )
    assert read_signature(f"{name}.a.A").class_constants == {
        "behaviour": "previous",
        "place": "here",
        "keys": ("a", "b"),
    }


def test_options_that_are_passed_on_are_those_of_the_parent_too(package: Write) -> None:
    name = package(
        a="class A:\n    def __init__(self, device, *, a, b=1): ...\n",
        b="from .a import A\nclass B(A):\n    def __init__(self, *, b=2, c=3, **options): ...\n"
        "class C(B):\n    def __init__(self, *given, **options): ...\n"
        "class D:\n    def __init__(self, *, d, **options): ...\n",
    )
    for child in ("B", "C"):
        found = read_signature(f"{name}.b.{child}")
        defaults = {option: p.default for option, p in found.parameters.items()}
        assert defaults == {"a": ..., "b": 2, "c": 3}
        assert found.parameters["a"].required
        assert not found.takes_any
    assert read_signature(f"{name}.b.D").takes_any


def test_an_option_of_the_parent_may_be_absent(package: Write) -> None:
    name = package(
        a="class A:\n    def __init__(self, *, a=1, b=2): ...\n"
        "class B(A):\n    absent = ('b',)\n    def __init__(self, *, c=3, **options): ...\n"
    )
    assert [*read_signature(f"{name}.a.B").parameters] == ["a", "c"]
    assert [*read_signature(f"{name}.a.A").parameters] == ["a", "b"]

    class Parent:
        def __init__(self, *, a: int = 1, b: int = 2) -> None: ...

    class Child(Parent):
        absent = ("b",)

    assert [*live_signature("Child", Child).parameters] == ["a"]


def test_reexports(package: Write) -> None:
    name = package(
        __init__="from .a import A\nfrom .stars import *\ntry:\n    from .c import C\n"
        "except ImportError:\n    C = None\nAlias = A\n",
        a="class A:\n    def __init__(self, *, a): ...\n",
        stars="class B:\n    def __init__(self, *, b): ...\n",
        c="class C:\n    def __init__(self, *, c): ...\n",
    )
    for target, parameter in [("A", "a"), ("Alias", "a"), ("B", "b"), ("C", "c")]:
        assert set(read_signature(f"{name}.{target}").parameters) == {parameter}


def test_dataclasses(package: Write) -> None:
    name = package(
        a="from dataclasses import *\nfrom typing import ClassVar\n"
        "@dataclass\nclass A:\n    a: int\n    kind: ClassVar[str] = 'x'\n"
        "@dataclass(frozen=True)\nclass B(A):\n    _: KW_ONLY\n    b: float = 1.0\n"
        "    c: list[int] = field(default_factory=list)\n    d: int = field(repr=False)\n"
        "    e: int = field(init=False, default=3)\n"
        "class Plain:\n    note: int\n"
    )
    parameters = read_signature(f"{name}.a.B").parameters
    assert {n: p.required for n, p in parameters.items()} == {
        "a": True,
        "b": False,
        "c": False,
        "d": True,
    }
    assert parameters["b"].kind is float
    assert read_signature(f"{name}.a.Plain").parameters == {}


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("no_such_package.A", "there is no package 'no_such_package'"),
        ("rlfactory.no.A", "there is no module rlfactory.no"),
        ("rlfactory.cli.app.nope", "rlfactory.cli.app has no nope"),
        ("rlfactory.cli.flags.NOT_OURS", "neither a class nor a function"),
        ("A", "there is no package ''"),
    ],
)
def test_targets_that_are_none(target: str, said: str) -> None:
    with pytest.raises(TargetError, match=said):
        read_signature(target)


def test_modules_that_import_each_other_end(package: Write) -> None:
    name = package(a="from .b import X\n", b="from .a import X\n")
    with pytest.raises(TargetError, match="has no X"):
        read_signature(f"{name}.a.X")


def test_the_runtime_arguments_are_the_positional_parameters_of_each_group() -> None:
    found: dict[str, set[str]] = {}
    for path in (Path(__file__).parents[3] / "conf").rglob("*.yaml"):
        content = yaml.safe_load(path.read_text())
        for group, node in content.items() if isinstance(content, dict) else ():
            target = str(node.get("_target_")) if isinstance(node, dict) else ""
            if target.startswith("rlfactory."):
                module, _, name = target.rpartition(".")
                made = getattr(importlib.import_module(module), name)
                parameters = constructor_parameters(made)
                names = {p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD}
                found[group] = found.get(group, set()) | names
    passed = {group: {*names} for group, names in RUNTIME_ARGUMENTS.items()}
    for names in (passed, found):  # mostly torch's own, whose parameters have no kind of their own
        del names["optimizer"]
    assert {group: names for group, names in found.items() if names} == passed


@pytest.mark.parametrize(
    ("group", "contract"),
    [
        ("algo", "algo/base"),
        ("dynamics", "dynamics/base"),
        ("hardware", "hardware/base"),
        ("model", "model/base"),
        ("regularizer", "regularizer/base"),
        ("reward", "reward/base"),
    ],
)
def test_each_contract_names_its_run_time_arguments(group: str, contract: str) -> None:
    package = Path(rlfactory.__file__).parent
    text = (package / f"{contract}.py").read_text(encoding="utf-8")
    described = re.findall(r"`(\w+)|^ {4}(\w+)(?::| {2,})", text, re.MULTILINE)
    assert {*RUNTIME_ARGUMENTS[group]} <= {name for pair in described for name in pair}


CONTRACTS = {
    "algo": ("algo.base.Algorithm",),
    "advantage": ("algo.advantage.base.Advantage",),
    "dynamics": ("dynamics.base.Dynamics", "dynamics.ops.solver.Solver"),
    "engine": ("engine.base.Engine",),
    "logger": ("run.loggers.base.Logger",),
    "model": ("model.base.ImageModel", "model.text_base.TextModel", "model.causal_lm.CausalLM"),
    "prompts": ("prompts.base.Prompts",),
    "regularizer": ("regularizer.base.Regularizer",),
    "reward": ("reward.base.Reward",),
    "schedule": ("dynamics.schedule.Schedule",),
    "window": ("dynamics.window.Window",),
}


def test_contracts_declare_each_trait_that_is_read() -> None:
    package = Path(rlfactory.__file__).parent
    source = "".join(path.read_text(encoding="utf-8") for path in package.rglob("*.py"))
    read = {*re.findall(r'traits(?:\.get\(|\[)"(\w+)"(?:, {}\)|\])\.get\("(\w+)"', source)}
    read |= {*re.findall(r'trait\(config\["(\w+)"\], "(\w+)"', source), ("logger", "made_of")}
    read |= {("algo", name) for name in re.findall(r'of_algo\(config, traits, "(\w+)"', source)}
    assert len(read) > 40
    for group, name in sorted(read):
        kinds = []
        for contract in CONTRACTS[group]:
            module, _, kind = contract.rpartition(".")
            kinds.append(getattr(importlib.import_module(f"rlfactory.{module}"), kind))
        ancestors = [ancestor for kind in kinds for ancestor in kind.__mro__]
        assert any(name in {**vars(a).get("__annotations__", {}), **vars(a)} for a in ancestors), (
            f"{group}.{name}"
        )


def test_algorithms_get_the_run_time_objects_of_their_base() -> None:
    for folder in ("algo", "algo/ops"):
        for path in (Path(rlfactory.__file__).parent / folder).glob("*.py"):
            importlib.import_module(f"rlfactory.{folder.replace('/', '.')}.{path.stem}")
    wanted: list[tuple[type, set[str]]] = [
        (StepAlgorithm, {"dynamics", "advantage"}),
        (ForwardAlgorithm, {"advantage", "times", "sigmas"}),
    ]
    for base, objects in wanted:
        assert len(base.__subclasses__()) > 2
        for kind in base.__subclasses__():
            assert objects <= {p.name for p in constructor_parameters(kind)}, kind
