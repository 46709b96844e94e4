"""Arrow columns as plain Python values, whatever session or zone they came through."""

from typing import Any

import pyarrow as pa


def plain(array: pa.Array) -> list[Any]:
    """Moments are microseconds, days numbers; times of day are as they are given."""
    kind = array.type
    if pa.types.is_timestamp(kind):
        return array.cast(pa.int64()).to_pylist()
    if pa.types.is_date(kind):
        return array.cast(pa.int32()).to_pylist()
    if pa.types.is_struct(kind):
        children = [plain(array.field(number)) for number in range(kind.num_fields)]
        names = [part.name for part in kind]
        valid = array.is_valid().to_pylist()
        return [
            dict(zip(names, values, strict=True)) if there else None
            for values, there in zip(zip(*children, strict=True), valid, strict=True)
        ]
    if pa.types.is_list(kind):
        return [plain(each.values) if each.is_valid else None for each in array]
    if pa.types.is_map(kind):
        return [
            list(zip(plain(each.values.field(0)), plain(each.values.field(1)), strict=True))
            if each.is_valid
            else None
            for each in array
        ]
    return array.to_pylist()


def plain_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of a batch."""
    columns = [plain(column) for column in batch.columns]
    return [dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]
