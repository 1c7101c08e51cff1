"""A line of code knows its room from its imports."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import ldp_slicing

ROOT = Path(ldp_slicing.__file__).parent
MODULES = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in ROOT.rglob("*.py")}
PURE = {"plan", "tables", "view", "mask", "errors"}


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def ours(path: Path) -> set[str]:
    return {name.split(".")[1] for name in imports(path) if name.startswith("ldp_slicing.")}


@pytest.mark.parametrize("module", sorted(PURE))
def test_the_mechanism_imports_nothing_of_ours_but_itself(module: str) -> None:
    assert ours(MODULES[module]) & {path.split(".")[0] for path in MODULES} <= PURE


@pytest.mark.parametrize("module", sorted(MODULES))
def test_nothing_imports_the_command_line_or_an_ordinary_generator(module: str) -> None:
    if not module.startswith(("cli", "__main__")):
        assert "cli" not in ours(MODULES[module])
    assert not imports(MODULES[module]) & {"random", "numpy.random", "torch"}
    assert "np.random" not in MODULES[module].read_text()


def test_the_public_names() -> None:
    assert set(ldp_slicing.__all__) == {"Card", "LdpSlicingError", "Plan", "Slice", "Slicer", "__version__", "privatize"}


def test_importing_the_package_brings_no_more_than_it_needs() -> None:
    code = "import sys, ldp_slicing; print(sorted({'PIL', 'typer', 'rich', 'torch', 'scipy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
