"""A row with a value in columns of all types, and one that has nothing but its arrival."""

from datetime import UTC, date, datetime, time
from decimal import Decimal
from uuid import UUID

import pyarrow as pa

START = datetime(2021, 7, 11, tzinfo=UTC)
AT = datetime(2021, 7, 11, 0, 5, 0, 123456)
ID = UUID("6f9619ff-8b86-d011-b42d-00c04fc964ff")
SCHEMA = pa.schema(
    [
        ("at", pa.timestamp("us")),
        ("zoned", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("clock", pa.time64("us")),
        ("uuid", pa.uuid()),
        ("code", pa.binary(3)),
        ("price", pa.decimal128(20, 4)),
        ("ratio", pa.float32()),
        ("is.flag", pa.bool_()),
        ("user", pa.string()),
        ("payload", pa.binary()),
        (
            "kafka",
            pa.struct([("partition", pa.int32()), ("offset", pa.int64()), ("sent_ms", pa.int64())]),
        ),
        ("tags", pa.list_(pa.string())),
        ("sizes", pa.map_(pa.string(), pa.int32())),
    ]
)
FULL = {
    "at": AT,
    "zoned": AT.replace(tzinfo=UTC),
    "day": date(2021, 7, 11),
    "clock": time(12, 30, 15, 123456),
    "uuid": ID.bytes,
    "code": b"abc",
    "price": Decimal("-1.0001"),
    "ratio": 0.5,
    "is.flag": True,
    "user": "ann",
    "payload": b"\x00\xff",
    "kafka": {"partition": 3, "offset": 2**40, "sent_ms": 1_625_961_900_001},
    "tags": ["a", None],
    "sizes": [("s", 7), ("none", None)],
}
EMPTY = dict.fromkeys(FULL) | {"at": AT}


def rows_of_every_type() -> pa.Table:
    """Both rows, ``FULL`` and ``EMPTY``."""
    columns = [_column([FULL[name], EMPTY[name]], SCHEMA.field(name).type) for name in SCHEMA.names]
    return pa.table(columns, schema=SCHEMA)


def _column(values: list[object], kind: pa.DataType) -> pa.Array:
    return (
        pa.ExtensionArray.from_storage(kind, pa.array(values, pa.binary(16)))
        if kind == pa.uuid()
        else pa.array(values, kind)
    )
