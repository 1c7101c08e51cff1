"""Parquet files: what is read, what is written, and what is left out."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from ldp_slicing.errors import ImageError
from ldp_slicing.formats import parquet, thrift
from ldp_slicing.formats.base import Claims, Options
from ldp_slicing.release.settings import ReleaseSettings
from tests.formats.parquet_files import FEATURES, table
from tests.formats.shards import OTHER
from tests.formats.tampering import problem_of
from tests.markers import encoded, gradient
from tests.release.helpers import PNG, SECRET, expected, manifest_of, outputs, plant, release, spent, verified


def test_a_hugging_face_data_set(tmp_path: Path, key: Path) -> None:
    images = [encoded(gradient(5 + i % 7, 9), "JPEG") for i in range(230)]
    source = plant(tmp_path / "in", {"train.parquet": table(images)})
    ran = release(source, tmp_path / "out", ReleaseSettings(5.0, keep=("label",), names="random"), key=key)
    assert (ran.problems, ran.complete) == ({}, True)
    (name,) = outputs(tmp_path / "out")
    assert SECRET not in (tmp_path / "out" / name).read_bytes()
    made = pq.read_table(tmp_path / "out" / name)
    assert made.column_names == ["image", "label"]
    assert made.column("label").to_pylist() == [i % 2 for i in range(230)]
    features = json.loads(made.schema.metadata[b"huggingface"])["info"]["features"]
    assert features == {name: FEATURES[name] for name in ("image", "label")}
    rows = made.column("image").to_pylist()
    for row in (0, 1, 129, 229):
        np.testing.assert_array_equal(
            np.asarray(Image.open(io.BytesIO(rows[row]["bytes"]))),
            expected("train.parquet", "", np.asarray(Image.open(io.BytesIO(images[row]))), 24, key),
        )
    assert verified(tmp_path / "out") == []
    assert len(manifest_of(tmp_path / "out")) == 230
    assert spent().releases == 7


def test_rows_without_an_image_are_left_out(tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"a.parquet": table([PNG, None, b"text", OTHER])})
    ran = release(source, tmp_path / "out", ReleaseSettings(5.0, keep=("label",)))
    made = pq.read_table(tmp_path / "out" / "a.parquet")
    assert [row["path"] for row in made.column("image").to_pylist()] == [f"{SECRET.decode()}{i}.png" for i in (0, 3)]
    assert made.column("label").to_pylist() == [0, 1]
    assert len(ran.problems) == 2


def parquet_of(**columns: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"no parquet", "not a Parquet file"),
        (table([PNG])[:-20], "not a Parquet file"),
        (parquet_of(a=[1]), "0 image columns"),
        (table([PNG], more=pa.array([{"bytes": b"", "path": ""}])), "2 image columns"),
        (table([PNG], thumb=pa.array([PNG])), "thumb (binary) that may hold images"),
        (
            table([PNG], nested=pa.array([[{"deep": PNG}]])),
            "nested (list<element: struct<deep: binary>>) that may hold images",
        ),
        (table([None], thumb=pa.array([3])), "nothing that can be released: has no image data"),
    ],
)
def test_files_that_cannot_be_released(data: bytes, why: str, tmp_path: Path) -> None:
    keep = ("nested",) if "nested" in why else ("thumb",)
    ran = release(plant(tmp_path / "in", {"a.parquet": data}), tmp_path / "out", ReleaseSettings(5.0, keep=keep))
    assert why in ran.problems["a.parquet"]
    assert outputs(tmp_path / "out") == {}


def with_footer(data: bytes, change: Callable[[dict[int, thrift.Field]], None], before: bytes = b"") -> bytes:
    """Return the file with another footer, and with bytes before it."""
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    fields = thrift.decode(data[start:-8])
    change(fields)
    footer = thrift.encode(fields)
    return data[:start] + before + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def with_metadata(fields: dict[int, thrift.Field]) -> None:
    fields[5].value.append(thrift.Field(thrift.STRUCT, {1: thrift.text(b"author"), 2: thrift.text(SECRET)}))


def with_gap(data: bytes) -> bytes:
    """Return the file with bytes before its first page, and with every offset corrected."""

    def shift(fields: dict[int, thrift.Field]) -> None:
        for group in fields[4].value:
            for chunk in group.value[1].value:
                about = chunk.value[3].value
                about[9] = thrift.Field(6, about[9].value + 2 * len(SECRET))

    return b"PAR1" + SECRET + with_footer(data, shift)[4:]


def rewritten(data: bytes, **options: Any) -> bytes:
    content, file = pq.read_table(io.BytesIO(data)), io.BytesIO()
    pq.write_table(content, file, **options)
    return file.getvalue()


def with_column(data: bytes) -> bytes:
    content, file = pq.read_table(io.BytesIO(data)), io.BytesIO()
    pq.write_table(content.append_column("thumb", pa.array([SECRET])), file)
    return file.getvalue()


def in_long_form(data: bytes) -> bytes:
    """Return the file with a number of its footer in more bytes than it needs: the version."""
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    assert data[start : start + 2] == b"\x15\x04"
    footer = b"\x15\x84\x80\x00" + data[start + 2 : -8]
    return data[:start] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def nothing(fields: dict[int, thrift.Field]) -> None:
    """Change nothing."""


ATTACKS: dict[str, Callable[[bytes], bytes]] = {
    "metadata in the schema": lambda data: with_footer(data, with_metadata),
    "bytes before the footer": lambda data: with_footer(data, nothing, SECRET),
    "bytes before the pages": with_gap,
    "bytes before the file": lambda data: SECRET + data,
    "bytes behind the file": lambda data: data + SECRET + data[-8:],
    "a library's name": lambda data: with_footer(data, lambda fields: fields.update({6: thrift.text(SECRET)})),
    "an unknown field": lambda data: with_footer(data, lambda fields: fields.update({99: thrift.text(SECRET)})),
    "bytes behind the footer's structure": lambda data: (
        data[:-8] + SECRET + (int.from_bytes(data[-8:-4], "little") + len(SECRET)).to_bytes(4, "little") + b"PAR1"
    ),
    "a number in a longer form": in_long_form,
    "statistics": lambda data: rewritten(data, compression="none", use_dictionary=False),
    "compression": lambda data: rewritten(data, compression="zstd"),
    "a column that may hold images": with_column,
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_verify_accounts_for_every_byte(attack: str, tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"a.parquet": table([PNG])})
    release(source, tmp_path / "out", ReleaseSettings(5.0, keep=("label",)))
    assert verified(tmp_path / "out") == []
    data = ATTACKS[attack]((tmp_path / "out" / "a.parquet").read_bytes())
    assert problem_of(tmp_path / "out", "a.parquet", data) is not None


def test_any_changed_byte_outside_of_values_is_found(tmp_path: Path) -> None:
    release(plant(tmp_path / "in", {"a.parquet": table([PNG])}), tmp_path / "out")
    data = (tmp_path / "out" / "a.parquet").read_bytes()
    image = pq.read_table(io.BytesIO(data))["image"][0].as_py()
    free = set[int]()
    for value in (image["bytes"], image["path"].encode()):
        free |= {*range(data.index(value), data.index(value) + len(value))}
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    assert free < {*range(footer)}
    assert footer - len(free) < 100  # magic bytes, page headers, levels and lengths
    free |= {*range(data.index(b"image", footer), data.index(b"image", footer) + 5)}  # the name of the column
    for at in sorted({*range(len(data))} - free):
        changed = bytearray(data)
        changed[at] ^= 1
        try:
            found = [one.problem for one in parquet.check(io.BytesIO(changed), Claims())]
        except (ImageError, pa.ArrowException, OSError, ValueError, LookupError, TypeError, AttributeError):
            continue
        assert any(found), f"byte {at}"


def test_more_rows_than_bytes_are_refused(tmp_path: Path) -> None:
    files = {"rows.parquet": table([None] * 1_000_000, label=pa.nulls(1_000_000), text=pa.nulls(1_000_000))}
    files["bomb.parquet"] = rewritten(table([bytes(50_000_000)]), compression="zstd")
    ran = release(plant(tmp_path / "in", files), tmp_path / "out")
    assert "declares 1,000,000 rows" in ran.problems["rows.parquet"]
    assert "bytes of values" in ran.problems["bomb.parquet"]


def test_a_kept_column_holds_nothing_of_rows_that_are_left_out(tmp_path: Path) -> None:
    names = pa.array(["PATIENT-LEFT-OUT", "somebody"]).dictionary_encode()
    source = plant(tmp_path / "in", {"a.parquet": table([b"not an image", PNG], more=names)})
    assert len(release(source, tmp_path / "out", ReleaseSettings(5.0, keep=("more",))).problems) == 1
    written = (tmp_path / "out" / "a.parquet").read_bytes()
    assert b"somebody" in written
    assert b"PATIENT" not in written


def test_metadata_inside_column_types_is_removed(tmp_path: Path) -> None:
    told = {b"patient": b"PATIENT"}
    values = {
        "a": pa.array([{"x": 7}], pa.struct([pa.field("x", pa.int64(), metadata=told)])),
        "b": pa.array([[1.5]], pa.list_(pa.field("item", pa.float64(), metadata=told))),
        "c": pa.array([[1.5]], pa.list_(pa.field("item", pa.float64(), metadata=told), 1)),
        "d": pa.array([[1.5]], pa.large_list(pa.field("item", pa.float64(), metadata=told))),
        "e": pa.array(
            [[("k", [{"x": 7}])]], pa.map_(pa.string(), pa.list_(pa.struct([pa.field("x", pa.int64(), metadata=told)])))
        ),
    }
    source = plant(tmp_path / "in", {"a.parquet": table([PNG], **values)})
    assert release(source, tmp_path / "out", ReleaseSettings(5.0, keep=tuple(values))).problems == {}
    assert b"PATIENT" not in base64.b64decode(
        pq.ParquetFile(tmp_path / "out" / "a.parquet").metadata.metadata[b"ARROW:schema"]
    )
    made = pq.read_table(tmp_path / "out" / "a.parquet")
    assert [made[name][0].as_py() for name in values] == [column[0].as_py() for column in values.values()]
    assert verified(tmp_path / "out") == []
    pq.write_table(made.set_column(1, "a", values["a"]), tmp_path / "b.parquet", compression="none")
    with (tmp_path / "b.parquet").open("rb") as file:
        problems = [seen.problem for seen in parquet.check(file, Claims()) if seen.problem]
        assert problems[0] == "has unknown metadata: patient"


def test_unknown_tensor_types_are_not_kept(tmp_path: Path) -> None:
    content = pq.read_table(io.BytesIO(table([PNG], more=pa.array([[0.5] * 189]))))
    told = {b"ARROW:extension:name": b"somebody.tensor", b"ARROW:extension:metadata": b"[9, 7, 3]"}
    at = content.schema.get_field_index("more")
    file = io.BytesIO()
    pq.write_table(content.cast(content.schema.set(at, content.schema.field(at).with_metadata(told))), file)
    ran = release(
        plant(tmp_path / "in", {"a.parquet": file.getvalue()}), tmp_path / "out", ReleaseSettings(5.0, keep=("more",))
    )
    assert "may hold images" in ran.problems["a.parquet"]


def test_features_that_are_lists_are_not_images(tmp_path: Path) -> None:
    """Older versions of Hugging Face's software wrote them."""
    features = FEATURES | {"ids": [{"dtype": "int64", "_type": "Value"}]}
    content = pq.read_table(io.BytesIO(table([PNG], ids=pa.array([[1, 2]]))))
    content = content.replace_schema_metadata({b"huggingface": json.dumps({"info": {"features": features}}).encode()})
    file = io.BytesIO()
    pq.write_table(content, file)
    assert (
        release(
            plant(tmp_path / "in", {"a.parquet": file.getvalue()}),
            tmp_path / "out",
            ReleaseSettings(5.0, keep=("ids",)),
        ).problems
        == {}
    )
    assert pq.read_table(tmp_path / "out" / "a.parquet")["ids"].to_pylist() == [[1, 2]]


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        (pa.array([3], pa.uint8()), True),
        (pa.array(["cat"]).dictionary_encode(), True),
        (pa.array([[[0.0, 0.5], [1.0, 1.0]]]), True),  # boxes
        (pa.array([{"when": 1.5, "who": ["a", "b"]}]), True),
        (pa.array(["a"], pa.large_string()), True),
        (pa.nulls(1), True),
        (pa.array([None], pa.int64()), True),
        (pa.array([True]), True),
        (pa.array([np.float16(1.5)]), True),
        (pa.array([Decimal("1.5")]), True),
        (pa.array([7], pa.duration("s")), True),
        (pa.array([7], pa.timestamp("ns", tz="Europe/Berlin")), True),
        (pa.array([7], pa.timestamp("s")), True),
        (pa.array([7], pa.date64()), True),
        (pa.array([7], pa.time32("s")), True),
        (pa.array([[1.5, None]], pa.list_(pa.field("item", pa.float64()))), True),
        (pa.array([[1.5]], pa.large_list(pa.field("x", pa.float64(), nullable=False))), True),
        (pa.array([[1, 2]], pa.list_(pa.int32(), 2)), True),
        (pa.array([[("k", 1.5)]], pa.map_(pa.string(), pa.float64())), True),
        (pa.array([["a", "b"]], pa.list_(pa.large_string())), True),
        (pa.array([PNG]).dictionary_encode(), False),
        (pa.array([PNG], pa.binary_view()), False),
        (pa.array([[1, 2, 3]], pa.list_(pa.uint8())), False),
        (pa.array([[[1, 2], [3, 4]]], pa.list_(pa.list_(pa.uint16()))), False),
        (pa.array([[[[1.0]]]]), False),
        (pa.array([{"deep": [[PNG]]}]), False),
        (pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((1, 9, 7, 3), np.float32)), False),
        (pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"caption": "a cat"}'])), True),
    ],
)
def test_columns_that_may_hold_images_are_not_kept(values: Any, kept: bool, tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"a.parquet": table([PNG], more=values)})
    ran = release(source, tmp_path / "out", ReleaseSettings(5.0, keep=("more",)))
    assert (ran.problems == {}) == kept
    assert kept or "may hold images" in ran.problems["a.parquet"]
    assert not kept or verified(tmp_path / "out") == []


def described(features: dict[str, Any], **columns: Any) -> bytes:
    """Return a data set with another description of its columns."""
    content, file = pq.read_table(io.BytesIO(table([PNG], **columns))), io.BytesIO()
    about = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    pq.write_table(content.replace_schema_metadata(about), file)
    return file.getvalue()


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ({"_type": "Value", "dtype": "int64", "id": SECRET.decode()}, {"dtype": "int64", "_type": "Value"}),
        ({"_type": "Value", "dtype": SECRET.decode()}, None),
        ({"_type": "Value", "dtype": "annasmith"}, None),
        ({"_type": "Value", "dtype": "timestamp[us]"}, {"dtype": "timestamp[us]", "_type": "Value"}),
        ({"_type": "Value", "dtype": "timestamp[us, tz=UTC]"}, None),
        ({"_type": "ClassLabel", "names": ["cat", "dog"], "note": 1}, {"names": ["cat", "dog"], "_type": "ClassLabel"}),
        ({"_type": "ClassLabel", "names": [{"a": 1}]}, None),
        ({"_type": "ClassLabel", "names": ["x" * 2_000_000]}, None),
        (
            {"_type": "Sequence", "feature": {"_type": "Value", "dtype": "int32"}, "length": -1},
            {"feature": {"dtype": "int32", "_type": "Value"}, "_type": "Sequence"},
        ),
        ({"_type": SECRET.decode()}, None),
        (SECRET.decode(), None),
        ({SECRET.decode(): {"_type": "Value", "dtype": "bool"}}, None),
        ({"a": 7}, None),
        ([{"_type": "Value", "dtype": "bool"}], [{"dtype": "bool", "_type": "Value"}]),
        ([1, 2], None),
    ],
)
def test_the_description_of_a_kept_column_holds_types_and_names_of_classes(
    given: Any, written: Any, tmp_path: Path
) -> None:
    source = described({"image": {"_type": "Image"}, "label": given})
    release(plant(tmp_path / "in", {"a.parquet": source}), tmp_path / "out", ReleaseSettings(5.0, keep=("label",)))
    about = pq.read_schema(tmp_path / "out" / "a.parquet").metadata[b"huggingface"]
    features = json.loads(about)["info"]["features"]
    assert features == {"image": {"_type": "Image"}} | ({"label": written} if written else {})
    assert verified(tmp_path / "out") == []


@pytest.mark.parametrize(
    ("values", "given", "written"),
    [
        (
            pa.array([0], pa.timestamp("us", tz="UTC")),
            {"_type": "Value", "dtype": "timestamp[us, tz=UTC]"},
            {"dtype": "timestamp[us, tz=UTC]", "_type": "Value"},
        ),
        (
            pa.array([{"x": 1, "y": {"z": ["a"]}}]),
            {"y": {"z": [{"dtype": "string", "_type": "Value"}]}, "x": {"dtype": "int64", "_type": "Value"}},
            {"x": {"dtype": "int64", "_type": "Value"}, "y": {"z": [{"dtype": "string", "_type": "Value"}]}},
        ),
        (
            pa.array([{"x": [1]}]),
            {"_type": "Sequence", "feature": {"x": {"dtype": "int64", "_type": "Value"}}},
            {"feature": {"x": {"dtype": "int64", "_type": "Value"}}, "_type": "Sequence"},
        ),
        (pa.array([{"x": 1}]), {SECRET.decode(): {"dtype": "int64", "_type": "Value"}}, None),
    ],
)
def test_a_description_has_the_names_of_its_columns_type(values: Any, given: Any, written: Any, tmp_path: Path) -> None:
    source = described({"image": {"_type": "Image"}, "more": given}, more=values)
    release(plant(tmp_path / "in", {"a.parquet": source}), tmp_path / "out", ReleaseSettings(5.0, keep=("more",)))
    about = pq.read_schema(tmp_path / "out" / "a.parquet").metadata[b"huggingface"]
    features = json.loads(about)["info"]["features"]
    assert json.dumps(features.get("more")) == json.dumps(written)
    assert verified(tmp_path / "out") == []


@pytest.mark.parametrize(
    "described",
    [
        {"names": ["cat", "dog"], "_type": "ClassLabel", "id": SECRET.decode()},
        {SECRET.decode(): {"dtype": "int64", "_type": "Value"}},
        {"dtype": f"timestamp[us, tz={SECRET.decode()}]", "_type": "Value"},
        {"dtype": SECRET.decode().replace("-", ""), "_type": "Value"},
    ],
)
def test_a_description_of_its_own_is_found(described: dict[str, Any], tmp_path: Path) -> None:
    source = plant(tmp_path / "in", {"a.parquet": table([PNG])})
    release(source, tmp_path / "out", ReleaseSettings(5.0, keep=("label",)))
    data = (tmp_path / "out" / "a.parquet").read_bytes()
    content, writer = pq.read_table(io.BytesIO(data)), parquet.Writer(file := io.BytesIO(), Options())  # type: ignore[arg-type]
    values = {"label": content["label"].combine_chunks()}
    features = {"label": described}
    writer.add_row(content["image"][0].as_py(), {"column": "image", "values": values, "features": features})
    writer.close()
    assert SECRET.replace(b"-", b"") in file.getvalue().replace(b"-", b"")
    assert problem_of(tmp_path / "out", "a.parquet", file.getvalue()) is not None


@pytest.mark.parametrize("length", [255, 256])
def test_the_name_of_the_column_of_images_has_a_limit(length: int, tmp_path: Path) -> None:
    content, file = pq.read_table(io.BytesIO(table([PNG]))), io.BytesIO()
    pq.write_table(content.rename_columns(["x" * length, "label", "text"]), file)
    ran = release(plant(tmp_path / "in", {"a.parquet": file.getvalue()}), tmp_path / "out")
    assert ("more than 255 bytes: rename it" in str(ran.problems)) == (length > 255)
    assert verified(tmp_path / "out") == [] if length == 255 else not outputs(tmp_path / "out")


def test_long_names_of_images_are_not_kept(tmp_path: Path) -> None:
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    column, file = pa.array([{"bytes": PNG, "path": f"{SECRET.decode() * 50}.png"}], kind), io.BytesIO()
    pq.write_table(pa.table({"image": column}), file)
    release(plant(tmp_path / "in", {"a.parquet": file.getvalue()}), tmp_path / "out")
    data = (tmp_path / "out" / "a.parquet").read_bytes()
    assert SECRET not in data
    assert verified(tmp_path / "out") == []


@pytest.mark.parametrize("form", ["text", "list of texts", "dictionary"])
def test_bytes_that_are_called_text_cannot_be_kept(form: str, tmp_path: Path) -> None:
    """Parquet says that a column is text, and nobody checks it."""
    raw = pa.array([b"a word", PNG], pa.binary())
    text = pa.StringArray.from_buffers(2, *raw.buffers()[1:])
    columns = {
        "text": text,
        "list of texts": pa.ListArray.from_arrays([0, 1, 2], text),
        "dictionary": pa.DictionaryArray.from_arrays(pa.array([0, 1]), text, safe=False),
    }
    data = table([PNG, PNG], caption=columns[form])
    ran = release(
        plant(tmp_path / "in", {"a.parquet": data}), tmp_path / "out", ReleaseSettings(5.0, keep=("caption",))
    )
    why = "has a column caption with text that is not UTF-8, which may be an image: leave out --keep caption"
    if form == "dictionary":  # Arrow itself refuses it
        why = "is not a Parquet file, or is damaged: Invalid UTF8 payload"
    assert ran.problems == {"a.parquet": why}
    assert outputs(tmp_path / "out") == {}
    assert release(plant(tmp_path / "in", {"a.parquet": data}), tmp_path / "out2").problems == {}


def with_wrong_statistics() -> bytes:
    """Return a Parquet file whose footer has statistics that end the process when pyarrow looks at a column."""
    data = table([PNG])
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    fields = thrift.decode(data[start:-8])
    for group in fields[4].value:
        for chunk in group.value[1].value:
            seven = thrift.Field(9, [thrift.Field(6, 2)] * 7)
            chunk.value[3].value[16] = thrift.Field(thrift.STRUCT, {2: seven, 3: seven})
    footer = thrift.encode(fields)
    return data[:start] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def test_wrong_statistics_do_not_end_the_process(tmp_path: Path) -> None:
    path = plant(tmp_path, {"a.parquet": with_wrong_statistics()}) / "a.parquet"
    code = f"from ldp_slicing.formats import parquet; print(*parquet.keepable(lambda: open({str(path)!r}, 'rb')))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert set(ran.stdout.split()) == {"label", "text"}


@pytest.mark.parametrize("damaged", [b"labe\x81", b"\xff\xff\xff\xff\xff"])
def test_a_damaged_column_name_is_reported_by_file(damaged: bytes, tmp_path: Path) -> None:
    files = {"a.parquet": table([PNG]).replace(b"label", damaged), "b.parquet": table([PNG])}
    ran = release(plant(tmp_path / "in", files), tmp_path / "out", ReleaseSettings(5.0, keep=("text",)))
    assert set(ran.problems) == {"a.parquet"}
    assert outputs(tmp_path / "out").keys() == {"b.parquet"}
