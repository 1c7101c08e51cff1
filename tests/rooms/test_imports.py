"""Imports go one way: each module may import only what its room allows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import ldp_slicing
from tests.rooms.graph import MODULES, NAME, children_graph, find_cycle, graph, imported_names, packages, reachable

PURE = {f"{NAME}.{module}" for module in ("plan", "tables", "view", "mask", "errors")}
ANALYST = tuple(
    f"{NAME}.{room}" for room in ("torch", "lab", "cli.lab", "cli.decode", "cli.advise")
)  # extras that the owner's side never imports
OWNER = sorted(name for name in MODULES if not name.startswith(ANALYST))
SHARED = ("formats", "manifest", "opened", "sets", "verify", "storage", "card")  # what owner and analyst both use


def in_rooms(name: str, *rooms: str) -> bool:
    return any(name == f"{NAME}.{room}" or name.startswith(f"{NAME}.{room}.") for room in rooms)


def test_no_cycle_between_modules() -> None:
    assert find_cycle(graph()) == []


@pytest.mark.parametrize("package", packages())
def test_no_cycle_between_the_children_of_a_package(package: str) -> None:
    """A subpackage counts as one node, so it cannot import a sibling that imports it."""
    assert find_cycle(children_graph(package)) == []


@pytest.mark.parametrize("module", sorted(PURE))
def test_the_mechanism_imports_nothing_but_itself(module: str) -> None:
    assert graph()[module] <= PURE


@pytest.mark.parametrize("module", ["plan", "tables", "mask"])
def test_plans_and_masks_do_not_know_the_view(module: str) -> None:
    assert graph()[f"{NAME}.{module}"] <= PURE - {f"{NAME}.view"}


@pytest.mark.parametrize("module", OWNER)
def test_the_owners_side_imports_neither_lab_nor_torch_nor_an_ordinary_generator(module: str) -> None:
    allowed = ("cli.lab",) if module == f"{NAME}.cli.__init__" else ()
    assert not [
        name
        for name in graph()[module]
        if in_rooms(name, "lab", "torch", "cli.lab", "cli.decode", "cli.advise") and not in_rooms(name, *allowed)
    ]
    assert not imported_names(MODULES[module]) & {"random", "numpy.random", "torch", "torchvision"}
    assert "np.random" not in MODULES[module].read_text()


@pytest.mark.parametrize(
    "module",
    sorted(name for name in MODULES if in_rooms(name, "audit", "lab", "torch", "cli.decode", "cli.advise", *SHARED)),
)
def test_the_analysts_side_reaches_nothing_of_the_owners_run(module: str) -> None:
    assert not [name for name in reachable([module]) if in_rooms(name, "release", "ledger")]


@pytest.mark.parametrize("module", sorted(name for name in MODULES if not in_rooms(name, "cli", "__main__")))
def test_nothing_imports_the_command_line(module: str) -> None:
    assert not [name for name in graph()[module] if in_rooms(name, "cli")]


def test_the_public_names() -> None:
    expected = {"Card", "LdpSlicingError", "Plan", "Slice", "Slicer", "__version__", "privatize"}
    assert set(ldp_slicing.__all__) == expected


@pytest.mark.parametrize("module", ["ldp_slicing", "ldp_slicing.cli"])
def test_importing_the_owners_side_loads_no_optional_library(module: str) -> None:
    unwanted = {"torch", "torchvision", "scipy", "ray", "pyarrow", "pydicom", "av", "fsspec"}
    if module == "ldp_slicing":
        unwanted |= {"PIL", "typer", "rich"}
    code = f"import sys, {module}; print(sorted({unwanted!r} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_no_class_name_is_defined_twice() -> None:
    """A name that means two things in one package misleads readers; private classes are exempt."""
    found: dict[str, list[str]] = {}
    for module, path in MODULES.items():
        for name in re.findall(r"^class ([A-Z]\w*)", path.read_text(), re.MULTILINE):
            found.setdefault(name, []).append(module)
    per_format = {"Writer"}  # each format has one, behind the protocol of formats.base
    assert {name: where for name, where in found.items() if len(where) > 1 and name not in per_format} == {}


@pytest.mark.parametrize("path", sorted(Path(__file__).parents[1].rglob("*.py")), ids=lambda path: path.stem)
def test_no_test_imports_from_a_test_module(path: Path) -> None:
    assert not [name for name in imported_names(path) if re.match(r"tests\.(\w+\.)*test_\w+", name)]
