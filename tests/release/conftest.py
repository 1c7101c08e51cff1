from __future__ import annotations

from pathlib import Path

import pytest

from ldp_slicing.keys import new_key_file


@pytest.fixture
def key(tmp_path: Path) -> Path:
    new_key_file(tmp_path / "key")
    return tmp_path / "key"
