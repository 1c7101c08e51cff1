"""The import graph of the package, read from the source without importing anything."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import ldp_slicing

ROOT = Path(ldp_slicing.__file__).parent
NAME = ROOT.name


def module_name(path: Path) -> str:
    """``ldp_slicing.audit.exact`` for a module, ``ldp_slicing.audit.__init__`` for the file of a package."""
    return ".".join((NAME, *path.relative_to(ROOT).with_suffix("").parts))


MODULES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def imported_names(path: Path) -> set[str]:
    """Every dotted name that a file imports anywhere: at the top, in functions and under TYPE_CHECKING."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@cache
def graph() -> Mapping[str, frozenset[str]]:
    """Which of our modules each of our modules imports."""
    found = {}
    for name, path in MODULES.items():
        names = imported_names(path)
        targets = names & MODULES.keys()
        packages = {f"{one}.__init__" for one in names} & MODULES.keys()
        # ``from package import module`` names the package too, but what it needs is the module.
        packages -= {f"{one.rpartition('.')[0]}.__init__" for one in targets}
        found[name] = frozenset((targets | packages) - {name})
    return found


def reachable(start: Iterable[str]) -> set[str]:
    """Our modules that are reached from ``start``, itself included."""
    seen: set[str] = set()
    waiting = list(start)
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += graph()[name]
    return seen


def find_cycle(edges: Mapping[str, Iterable[str]]) -> list[str]:
    """The nodes of a cycle, or an empty list."""
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def packages() -> list[str]:
    return sorted(name.removesuffix(".__init__") for name in MODULES if name.endswith(".__init__"))


def children_graph(package: str) -> dict[str, set[str]]:
    """The imports between the direct children of a package, each subpackage taken as one node."""

    def child(name: str) -> str | None:
        return name.removeprefix(f"{package}.").split(".")[0] if name.startswith(f"{package}.") else None

    edges: dict[str, set[str]] = {}
    for name, targets in graph().items():
        if (start := child(name)) is not None:
            ends = {end for target in targets if (end := child(target)) is not None}
            edges.setdefault(start, set()).update(ends - {start})
    return edges
