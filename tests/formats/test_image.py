"""Image files."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ldp_slicing.release.settings import ReleaseSettings
from ldp_slicing.view import Padded
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


@pytest.mark.parametrize(
    "settings",
    [
        ReleaseSettings(20.0, size=9),
        ReleaseSettings(20.0, size=(4, 3), prune="dct"),
        ReleaseSettings(20.0, size=Padded(40, 7)),
        ReleaseSettings(5.2, weights=(1, 1, 1), prune=None),
        ReleaseSettings(5.2, slices="Y7+Y6,Cb7+Cr7", prune="haar8"),
    ],
    ids=lambda settings: f"{settings.size}, {settings.prune}",
)
def test_the_whole_view_and_the_plan_decide_the_key_of_a_release(
    settings: ReleaseSettings, tmp_path: Path, key: Path
) -> None:
    """A key without one of them would give two releases of one source one mask."""
    release(plant(tmp_path / "in", {"a.png": encoded(gradient(), "PNG")}), tmp_path / "out", settings, key=key)
    made = np.asarray(
        Image.open(io.BytesIO(outputs(tmp_path / "out")["a.png"])).convert("RGB")
    )  # few colours: a palette
    np.testing.assert_array_equal(made, expected("a.png", "", gradient(), 24, key, settings=settings))
