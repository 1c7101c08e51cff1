"""Videos for tests. A test that uses them is skipped where PyAV is not installed."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.markers import gradient
from tests.release.helpers import SECRET


def video(frames: list[NDArray[np.uint8]], *, sound: bool = True, codec: str = "ffv1", rate: int = 12) -> bytes:
    """Return a Matroska file with a title and, if ``sound``, an audio stream."""
    av, file = pytest.importorskip("av"), io.BytesIO()
    with av.open(file, mode="w", format="matroska") as container:
        container.metadata["title"] = SECRET.decode()
        stream = container.add_stream(codec, rate=rate)
        grey = frames[0].ndim == 2
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt = "gray" if grey else "bgr0"
        voice = container.add_stream("pcm_s16le", rate=8000) if sound else None
        for pixels in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="gray" if grey else "rgb24")))
        container.mux(stream.encode(None))
        if voice is not None:
            noise = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), format="s16", layout="mono")
            noise.sample_rate = 8000
            container.mux(voice.encode(noise))
            container.mux(voice.encode(None))
    return file.getvalue()


FRAMES = [np.roll(gradient(24, 32), i, axis=1) for i in range(7)]


def frames_of(path: Path) -> list[NDArray[np.uint8]]:
    """Return the frames of a video, uint8 [H, W, 3] or, for grey, [H, W]."""
    with pytest.importorskip("av").open(path) as container:
        return [
            frame.to_ndarray(format="gray" if frame.format.name == "gray" else "rgb24")
            for frame in container.decode(video=0)
        ]
