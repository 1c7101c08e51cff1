from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

from ldp_slicing.keys import new_key_file

# No test is timed. CI repeats the same examples, so that a red run means a change; by hand every run tries new ones.
settings.register_profile("ldp-slicing", deadline=None, derandomize=bool(os.environ.get("CI")), print_blob=True)
settings.load_profile("ldp-slicing")


@pytest.fixture(autouse=True)
def own_data_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the ledger of whoever runs it, nor that of another test."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """Return the path of a new owner's key file."""
    new_key_file(tmp_path / "key")
    return tmp_path / "key"
