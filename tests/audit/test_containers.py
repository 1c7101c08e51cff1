"""Releases of every format are audited: in a folder, and as a single file with its card."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ldp_slicing.audit.faults import sample_image
from ldp_slicing.audit.releases import audit_releases
from ldp_slicing.png import encode_png
from ldp_slicing.release.settings import ReleaseSettings
from ldp_slicing.storage import LocalStorage
from ldp_slicing.verify import verify_file
from tests.formats.dicom_files import dicom, saved
from tests.formats.shards import shard
from tests.formats.videos import video
from tests.release.helpers import release

pytest.importorskip("pyarrow")
from tests.formats.parquet_files import table

IMAGES = [sample_image(number) for number in range(3)]
PNGS = [b"".join(encode_png(image)) for image in IMAGES]
SOURCES = {
    "png": lambda: PNGS[0],
    "tar": lambda: shard({f"{number}.png": data for number, data in enumerate(PNGS)}),
    "parquet": lambda: table(list(PNGS)),
    "dcm": lambda: saved(dicom(IMAGES[0][..., 0].astype(np.uint16) << 4, 12)),
    "mkv": lambda: video(IMAGES),
}


@pytest.mark.parametrize("suffix", SOURCES)
@pytest.mark.parametrize("alone", [False, True])
def test_releases_of_every_format(tmp_path: Path, suffix: str, alone: bool) -> None:
    source = tmp_path / "in" / f"a.{suffix}"
    source.parent.mkdir()
    source.write_bytes(SOURCES[suffix]())
    target = tmp_path / f"release.{suffix}" if alone else tmp_path / "out"
    release(source if alone else source.parent, target, ReleaseSettings(5.0))
    if alone:
        assert verify_file(LocalStorage(tmp_path), target.name).problems == []
    report = audit_releases(target)
    assert report.passed, str(report)
    assert report.subject.startswith("1 release in" if suffix in ("dcm", "png") else "3 releases in")
    assert report.outcome == "consistent with the card"
