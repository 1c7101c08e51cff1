"""The documents are true: commands parse, quoted output is what they print, imports resolve, links lead somewhere."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from ldp_slicing import Plan, Slicer
from ldp_slicing.cli import app
from ldp_slicing.storage import LocalStorage
from ldp_slicing.verify import verify_file
from tests.docs.documents import PAGES, ROOT, blocks, command_lines, normalised, sessions
from tests.markers import gradient

QUOTING = [page for page in PAGES if blocks(page.read_text(), "console")]
LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]*)#?([^)\s]*)\)")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


@pytest.mark.parametrize("page", QUOTING, ids=name)
def test_quoted_output_is_what_the_commands_print(page: Path, tmp_path: Path) -> None:
    for quoted, now in sessions(page.read_text(), tmp_path):
        assert normalised(quoted) == normalised(now), "run python -m tests.docs.documents"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_and_option_exists(page: Path) -> None:
    for arguments in command_lines(page.read_text()):
        command: Any = typer.main.get_command(app)
        while isinstance(command, typer.core.TyperGroup):
            # `ledger` without the name of a command means `ledger show`
            names_one = bool(arguments) and arguments[0] in command.list_commands(typer.Context(command))
            is_show = command.name == "ledger" and not names_one
            command = command.get_command(typer.Context(command), "show" if is_show else arguments.pop(0))
            assert command is not None
        options = {option for parameter in command.params for option in parameter.opts + parameter.secondary_opts}
        assert {word.partition("=")[0] for word in arguments if word.startswith("-")} <= options


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_import_resolves(page: Path) -> None:
    trees = [ast.parse(block) for block in blocks(page.read_text(), "python")]
    for node in (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)):
        assert node.module is not None
        if node.module.startswith(("ldp_slicing.torch", "ldp_slicing.lab")):
            pytest.importorskip("torch")
        module = importlib.import_module(node.module)
        assert all(hasattr(module, one.name) for one in node.names)


def test_a_release_that_is_saved_as_the_guide_says_can_be_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = (block for block in blocks((ROOT / "docs/guide/python.md").read_text(), "python") if ".save(" in block)
    exec(code, {"slicer": Slicer(Plan.paper(20.0)), "image": gradient()})
    assert not verify_file(LocalStorage(tmp_path), "release.png").problems


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for path, anchor in LINK.findall(FENCED.sub("", page.read_text())):
        target = (page.parent / path).resolve() if path else page
        assert target.is_file(), f"{path} is not there"
        if anchor:
            assert anchor in anchors(target), f"{path} has no heading {anchor}"


def test_the_architecture_names_modules_that_exist() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    named = re.findall(r"`((?:\w+/)*\w+\.(?:py|c)|(?:\w+/)+)`", text)
    assert len(named) > 30
    missing = [path for path in named if not any((ROOT / place / path).exists() for place in ("", "src/ldp_slicing"))]
    assert not missing


def test_the_guide_names_every_experiment() -> None:
    pytest.importorskip("torch")
    text = (ROOT / "docs/guide/reproducing.md").read_text()
    experiments = importlib.import_module("ldp_slicing.lab.experiments").MODULES
    assert not [name for name in experiments if f"`{name}`" not in text]


def test_the_site_builds_without_warnings(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="needs the extra docs")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", tmp_path / "site"]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "site/index.html").is_file()
