from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

from ldp_slicing.keys import new_key_file

# No deadlines. CI repeats the same examples, so that a failure means a change; local runs try new ones.
settings.register_profile("ldp-slicing", deadline=None, derandomize=bool(os.environ.get("CI")), print_blob=True)
settings.load_profile("ldp-slicing")


@pytest.fixture(autouse=True)
def own_data_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test its own data folder, so that no test uses another ledger."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
    monkeypatch.delenv("LDP_SLICING_LEDGER", raising=False)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """Return the path of a new owner's key file."""
    new_key_file(tmp_path / "key")
    return tmp_path / "key"
