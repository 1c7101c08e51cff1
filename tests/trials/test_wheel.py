"""The wheel that `make dist` builds, in an empty environment without a compiler."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import venv
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from tests.checkout import REPOSITORY, copy_repository

pytest.importorskip("build")


def run(*command: object, cwd: Path, **env: str) -> str:
    done = subprocess.run([*map(str, command)], cwd=cwd, env=env or None, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def needed(name: str, found: dict[str, list[Path]]) -> dict[str, list[Path]]:
    """Return the top-level files and folders of a distribution and of all that it needs, without extras."""
    if name in found:
        return found
    try:
        one = distribution(name)
    except PackageNotFoundError:  # of another system or version of Python
        return found
    tops = {path.parts[0] for path in one.files or () if path.parts[0] not in ("..", "__pycache__")}
    found[name] = [] if name == "ldp-slicing" else [Path(str(one.locate_file(top))) for top in tops]
    for wanted in one.requires or ():
        if "extra ==" not in wanted:
            needed(re.split("[^A-Za-z0-9._-]", wanted)[0], found)
    return found


def test_the_wheel_works_in_an_empty_environment_without_a_compiler(tmp_path: Path) -> None:
    source = copy_repository(tmp_path / "source")
    (source / "tests").mkdir()
    (source / "tests" / "test_it.py").touch()  # setuptools would add it, without what it needs to run
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path / "dist", cwd=source)
    wheel, sdist = sorted((tmp_path / "dist").iterdir(), key=lambda path: path.name.endswith(".tar.gz"))
    assert ("-cp311-abi3-" in wheel.name, sdist.suffix) == (True, ".gz")
    with tarfile.open(sdist) as packed:
        assert not [name for name in packed.getnames() if "tests" in name.split("/")]
    venv.create(tmp_path / "empty", symlinks=True)
    (site,) = (tmp_path / "empty").glob("lib/python*/site-packages")
    for one in (path for paths in needed("ldp-slicing", {}).values() for path in paths):
        (site / one.name).symlink_to(one)  # a copy of what pip would fetch
    install = (sys.executable, "-m", "pip", "--python", tmp_path / "empty", "install", "--no-deps", "--no-index", wheel)
    run(*install, cwd=tmp_path)
    programs = tmp_path / "empty" / "bin"
    assert shutil.which("cc", path=str(programs)) is None
    where = {"cwd": tmp_path, "PATH": str(programs), "HOME": str(tmp_path)}
    done = run(programs / "ldp-slicing", "doctor", **where)
    assert ("backend in use  kernel" in done, done.endswith("OK\n")) == (True, True)
    portrait = REPOSITORY / "examples" / "astronaut.jpg"
    run(programs / "ldp-slicing", "privatize", portrait, "release.png", "-e", "5", "--max-side", "64", **where)
    assert run(programs / "ldp-slicing", "verify", "release.png", **where).startswith("1 release, 1 file: OK")
    where_from = run(programs / "python", "-c", "import ldp_slicing; print(ldp_slicing.__file__)", **where)
    assert where_from.startswith(str(site))
