"""Without a compiler the package installs and works, more slowly, and reports why."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from tests.checkout import copy_repository

REPOSITORY = Path(__file__).parents[1]

USE_IT = """
import numpy as np
from ldp_slicing import Plan, Slicer, kernel
from ldp_slicing.selfcheck import check_installation
from ldp_slicing.errors import KernelError

assert not kernel.VARIANTS, kernel.VARIANTS
release = Slicer(Plan.paper(20.0))(np.zeros((5, 7, 3), np.uint8))
assert release.shape == (5, 7, 3)
try:
    Slicer(Plan.paper(20.0), backend="kernel")
except KernelError as error:
    assert "not available" in str(error)
else:
    raise AssertionError("the missing kernel was not missed")
findings = check_installation()
assert findings.healthy and "NumPy" in findings.facts["backend in use"]
assert "no kernel: it was not built" in findings.facts["why"]
print("works")
"""


def test_package_works_without_a_compiler(tmp_path: Path) -> None:
    environment = os.environ | {"CC": "/no/such/compiler", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    source = tmp_path / "source"
    copy_repository(source)
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--target",
        str(tmp_path / "site"),
        str(source),
    ]
    done = subprocess.run(install, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # -S and an explicit path: the editable installation of the repository must not be found instead
    libraries = str(Path(np.__file__).parents[1])
    used = subprocess.run(
        [
            sys.executable,
            "-S",
            "-c",
            f"import sys; sys.path[:0] = [{str(tmp_path / 'site')!r}, {libraries!r}]\n{USE_IT}",
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert used.stdout.strip() == "works", used.stderr
