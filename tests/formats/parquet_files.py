"""Parquet files for tests."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.release.helpers import SECRET

FEATURES = {
    "image": {"_type": "Image"},
    "label": {"_type": "ClassLabel", "names": ["cat", "dog"]},
    "text": {"_type": "Value", "dtype": "string"},
}


def table(images: list[bytes | None], **columns: Any) -> bytes:
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    column = pa.array(
        [image and {"bytes": image, "path": f"{SECRET.decode()}{i}.jpg"} for i, image in enumerate(images)], kind
    )
    content = pa.table(
        {
            "image": column,
            "label": pa.array([i % 2 for i in range(len(images))]),
            "text": [SECRET.decode()] * len(images),
            **columns,
        }
    )
    content = content.replace_schema_metadata(
        {b"huggingface": json.dumps({"info": {"features": FEATURES}}).encode(), b"other": SECRET}
    )
    file = io.BytesIO()
    pq.write_table(content, file)
    return file.getvalue()
