from __future__ import annotations

import os

import pytest
from hypothesis import settings

# No test is timed. CI repeats the same examples, so that a red run means a change; by hand every run tries new ones.
settings.register_profile("ldp-slicing", deadline=None, derandomize=bool(os.environ.get("CI")), print_blob=True)
settings.load_profile("ldp-slicing")


@pytest.fixture(autouse=True)
def own_data_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the ledger of whoever runs it, nor that of another test."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
