"""Tables with what PyIceberg does not support are refused with the reason, and others are read in
whatever codec their metadata is.
"""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from planned import hourly, plan, source
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.types import StructType

from backfill.api.errors import InvalidPlanInput
from backfill.iceberg.open_tables import Catalogs


@pytest.fixture
def events(lake: Catalog) -> Table:
    rows = pa.table({"ts": pa.array(hourly(), pa.timestamp("us", "UTC")), "note": ["a"] * 144})
    table = lake.create_table("raw.events", schema=rows.schema)
    table.append(rows)
    return table


def change(table: Table, part: str, changed: Any) -> None:
    """Changes the metadata of a table, as a newer or much older writer might have left it."""
    path = Path(table.metadata_location.removeprefix("file://"))
    metadata: dict[str, Any] = json.loads(path.read_bytes())
    changed(metadata[part])
    path.write_text(json.dumps(metadata))


def of_type(kind: object) -> Any:
    return lambda schemas: schemas[-1]["fields"][1].update(type=kind)


def inline(snapshots: list[dict[str, Any]]) -> None:
    del snapshots[0]["manifest-list"]
    snapshots[0]["manifests"] = ["manifest.avro"]


VARIANTS = {"type": "list", "element-id": 9, "element": "variant", "element-required": False}


@pytest.mark.parametrize(
    ("part", "changed", "why"),
    [
        (
            "schemas",
            of_type(VARIANTS),
            "schemas.0.fields.1.type.element: Type not recognized: variant",
        ),
        ("schemas", of_type("geometry(srid:4326)"), "geometry(srid:4326)"),
        (
            "partition-specs",
            lambda specs: specs[0]["fields"].append(
                {"source-ids": [1, 2], "field-id": 1000, "name": "b", "transform": "bucket[4]"}
            ),
            "partition-specs.0.fields.0: Multi argument transforms are not yet supported",
        ),
        ("snapshots", inline, "snapshots.0 lists its manifests inline (format version 1)"),
    ],
    ids=["variant in a list", "geometry", "transform", "inline manifests"],
)
def test_what_pyiceberg_does_not_support_in_a_table_is_named(
    events: Table, tmp_path: Path, part: str, changed: Any, why: str
) -> None:
    change(events, part, changed)
    with pytest.raises(InvalidPlanInput, match=re.escape(why)) as refused:
        plan(tmp_path / "w", source("events"))
    (problem,) = refused.value.problems
    assert problem.message.startswith(
        "table lake.raw.events has metadata that PyIceberg does not support: "
    )
    assert "credentials" not in problem.fix
    assert not refused.value.may_pass  # the next attempt would find the same


@pytest.mark.parametrize("codec", ["null", "gzip", "snappy", "zstd"])
def test_manifests_are_read_in_every_codec(lake: Catalog, tmp_path: Path, codec: str) -> None:
    rows = pa.table({"ts": pa.array(hourly(), pa.timestamp("us", "UTC"))})
    properties = {"write.avro.compression-codec": codec}
    lake.create_table("raw.events", schema=rows.schema, properties=properties).append(rows)
    assert plan(tmp_path / "w", source("events")).header.sources[0].files == 1


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        ("variant", "note"),
        (
            {
                "type": "struct",
                "fields": [
                    {"id": 8, "name": "by", "type": "string", "required": False},
                    {"id": 9, "name": "says", "type": "variant", "required": False},
                ],
            },
            "note.says",
        ),
        (
            {
                "type": "struct",
                "fields": [{"id": 8, "name": "says", "type": "variant", "required": False}],
            },
            "note.says",
        ),
    ],
    ids=["column", "field", "only field"],
)
def test_a_table_is_read_without_its_variants_and_is_not_written(
    events: Table, tmp_path: Path, kind: object, named: str
) -> None:
    change(events, "schemas", of_type(kind))
    made = plan(tmp_path / "w", source("events"))
    assert made.header.warnings == (
        f"source events: lake.raw.events is read without {named}, since columns of type variant"
        " cannot be passed on",
    )
    assert made.header.sources[0].files == 1
    seen = Catalogs().load_source("lake.raw.events", "spec.sources").schema()
    assert named not in seen.column_names
    assert "ts" in seen.column_names
    assert all(seen.find_type(name) != StructType() for name in seen.column_names)
    with pytest.raises(InvalidPlanInput, match=re.escape(f"support: {named} of type variant")):
        Catalogs().load_table("lake.raw.events", "spec.outputs")


def test_a_table_whose_variants_were_dropped_is_not_written(events: Table) -> None:
    """Its older files still have them."""
    change(events, "schemas", of_type("variant"))
    path = Path(events.metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_bytes())
    (old,) = metadata["schemas"]
    new = old | {"schema-id": 1, "fields": old["fields"][:1]}
    path.write_text(json.dumps(metadata | {"schemas": [old, new], "current-schema-id": 1}))
    assert Catalogs().load_source("lake.raw.events", "spec.sources").schema().fields
    with pytest.raises(InvalidPlanInput, match="support: note of type variant"):
        Catalogs().load_table("lake.raw.events", "spec.outputs")
