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
ANALYST = ("torch", "lab", "cli.lab")  # extras that the owner's side never imports
OWNER = sorted(name for name in MODULES if not name.startswith(ANALYST))


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


@pytest.mark.parametrize("module", ["plan", "tables", "mask"])
def test_masks_are_drawn_by_what_knows_neither_images_nor_their_view(module: str) -> None:
    assert ours(MODULES[module]) <= PURE - {"view"}


@pytest.mark.parametrize("module", OWNER)
def test_the_owners_side_never_imports_the_lab_torch_or_an_ordinary_generator(module: str) -> None:
    assert not ours(MODULES[module]) & {"lab", "torch"} - ({"lab"} if module == "cli.__init__" else set())
    assert not imports(MODULES[module]) & {"random", "numpy.random", "torch", "torchvision"}
    assert "np.random" not in MODULES[module].read_text()


@pytest.mark.parametrize("module", sorted(name for name in MODULES if not name.startswith(("cli", "__main__"))))
def test_nothing_imports_the_command_line(module: str) -> None:
    assert "cli" not in ours(MODULES[module])


def test_the_public_names() -> None:
    assert set(ldp_slicing.__all__) == {
        "Card",
        "LdpSlicingError",
        "Plan",
        "Slice",
        "Slicer",
        "__version__",
        "privatize",
    }


@pytest.mark.parametrize("module", ["ldp_slicing", "ldp_slicing.cli"])
def test_importing_the_owners_side_brings_no_more_than_it_needs(module: str) -> None:
    unwanted = {"torch", "torchvision", "scipy", "ray", "pyarrow", "pydicom", "av", "fsspec"} | (
        {"PIL", "typer", "rich"} if module == "ldp_slicing" else set()
    )
    code = f"import sys, {module}; print(sorted({unwanted!r} & set(sys.modules)))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )
