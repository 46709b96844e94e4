"""Keeps null lists and maps null when PyIceberg reads or writes rows.

PyIceberg 0.12 rebuilds lists of structs, and maps to structs, without regard to nulls: they become
empty.
"""

from functools import cache

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import pyarrow as pyiceberg_arrow
from pyiceberg.io.pyarrow import ArrowProjectionVisitor
from pyiceberg.types import ListType, MapType


@cache
def keep_null_lists() -> None:
    """Corrects PyIceberg in this process. Call it before rows are read or written."""
    setattr(pyiceberg_arrow, ArrowProjectionVisitor.__name__, _KeepingNulls)


class _KeepingNulls(ArrowProjectionVisitor):
    def list(
        self, list_type: ListType, list_array: pa.Array | None, value_array: pa.Array | None
    ) -> pa.Array | None:
        return _null_as(list_array, super().list(list_type, list_array, value_array))

    def map(
        self,
        map_type: MapType,
        map_array: pa.Array | None,
        key_result: pa.Array | None,
        value_result: pa.Array | None,
    ) -> pa.Array | None:
        return _null_as(map_array, super().map(map_type, map_array, key_result, value_result))


def _null_as(given: pa.Array | None, rebuilt: pa.Array | None) -> pa.Array | None:
    if given is None or rebuilt is None or rebuilt.null_count == given.null_count:
        return rebuilt
    # the IDs of a map's keys and values, which files need, are not in what if_else gives
    return pc.if_else(given.is_valid(), rebuilt, None).cast(rebuilt.type)
