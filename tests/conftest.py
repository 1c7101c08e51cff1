from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

from ldp_slicing.keys import new_key_file

# No deadlines. CI repeats the same examples, so that a failure means a change; local runs try new ones.
settings.register_profile("ldp-slicing", deadline=None, derandomize=bool(os.environ.get("CI")), print_blob=True)
settings.load_profile("ldp-slicing")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail if tests in one of the folders that MAY_NOT_SKIP names were skipped: CI has everything that they need."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    folders = tuple(os.environ.get("MAY_NOT_SKIP", "").split())
    if reporter is None or not folders:  # a worker reports to the process that started it
        return
    skipped = [report.nodeid for report in reporter.stats.get("skipped", ()) if report.nodeid.startswith(folders)]
    if skipped:
        reporter.ensure_newline()
        reporter.write_line(f"skipped, but MAY_NOT_SKIP={' '.join(folders)}: {' '.join(skipped)}", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


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
