"""Image files."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

from tests.formats.shards import members_of, shard
from tests.markers import encoded, gradient
from tests.release.helpers import expected, outputs, plant, release, spent


def test_16_bit_grey_is_released_from_tiff_png_and_shards(tmp_path: Path, key: Path) -> None:
    deep = (gradient()[..., 0].astype(np.uint16) << 8) + gradient()[..., 2]
    source = plant(
        tmp_path / "in",
        {
            "a.tif": encoded(deep, "TIFF"),
            "b.png": encoded(deep, "PNG"),
            "c.tar": shard({"x.tiff": encoded(deep, "TIFF")}),
        },
    )
    release(source, tmp_path / "out", key=key)
    wanted = expected("", "", deep, 16, key)
    for data in (
        *(outputs(tmp_path / "out")[name] for name in ("a.png", "b.png")),
        members_of(tmp_path / "out" / "c.tar")["x.png"],
    ):
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(data))), wanted)
    assert spent().releases == 1
