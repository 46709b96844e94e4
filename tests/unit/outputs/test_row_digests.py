"""Rows have one digest whatever their order and batches, and another one as soon as any value
differs.
"""

from collections import Counter
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill.outputs.row_digests import RowsDigest, digest

NAN, OTHER_NAN = (
    np.array([bits], np.uint64).view(np.float64)[0]
    for bits in (0x7FF8000000000000, 0xFFF8000000000001)
)
A, B = (UUID(int=number).bytes for number in (1, 1 << 64))
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [True, False]),
    "int": (pa.int32(), [0, -1, 2**31 - 1]),
    "long": (pa.int64(), [0, -1, 2**63 - 1, -(2**63)]),
    "float": (pa.float32(), [0.0, 0.5, float("inf"), NAN]),
    "double": (pa.float64(), [0.0, -0.0, 0.1, float("-inf"), NAN]),
    "date": (pa.date32(), [0, 1, -1]),
    "time": (pa.time64("us"), [0, 1]),
    "timestamp": (pa.timestamp("us"), [0, 1, -1]),
    "timestamptz": (pa.timestamp("us", "UTC"), [0, 1]),
    "nanoseconds": (pa.timestamp("ns"), [0, 1]),
    "decimal": (
        pa.decimal128(38, 2),
        [Decimal("0.00"), Decimal("-0.01"), Decimal(10**35), Decimal("184467440737095516.16")],
    ),
    "string": (pa.large_string(), ["", "a", "ab", "\x00", "é"]),
    "binary": (pa.binary(), [b"", b"\x00", b"\x00\x00"]),
    "uuid": (pa.uuid(), [A, B]),
    "fixed": (pa.binary(3), [b"abc", b"ab\x00"]),
    "list": (pa.list_(pa.int64()), [[], [1], [1, 2], [2, 1], [None], [1, None], [None, 1]]),
    "large list": (pa.large_list(pa.large_string()), [[], [""], ["", ""], ["a", "b"], ["ab"]]),
    "map": (
        pa.map_(pa.string(), pa.int64()),
        [[], [("a", 1)], [("a", None)], [("b", 1)], [("a", 1), ("b", 2)], [("a", 2), ("b", 1)]],
    ),
    "struct": (
        pa.struct([("x", pa.int64()), ("y", pa.int64())]),
        [{"x": 1, "y": 2}, {"x": 2, "y": 1}, {"x": None, "y": None}],
    ),
    "list of structs": (
        pa.list_(pa.struct([("x", pa.int64()), ("y", pa.list_(pa.int64()))])),
        [
            [],
            [{"x": 1, "y": [2]}],
            [{"x": 1, "y": []}, {"x": None, "y": [2]}],
            [None],
            [{"x": None, "y": None}],
        ],
    ),
    "map of lists": (
        pa.map_(pa.int64(), pa.list_(pa.string())),
        [[(1, ["a"])], [(1, [])], [(1, None)], [(1, ["a", "a"])]],
    ),
}


@pytest.mark.parametrize("kind", TYPES)
def test_every_value_and_null_have_digests_of_their_own(kind: str) -> None:
    type_, values = TYPES[kind]
    distinct = {digest(_batch(type_, [value])) for value in (*values, None)}
    assert len(distinct) == len(values) + 1
    assert digest(_batch(type_, [values[0], values[0]])) != digest(
        _batch(type_, [values[0], values[1]])
    )


@pytest.mark.parametrize("kind", TYPES)
@settings(max_examples=25)
@given(
    picked=st.lists(st.integers(0, 7), max_size=12),
    other=st.lists(st.integers(0, 7), max_size=12),
    cut=st.integers(0, 12),
)
def test_digests_are_equal_where_rows_are_in_any_order_and_batches(
    kind: str, picked: list[int], other: list[int], cut: int
) -> None:
    type_, values = TYPES[kind]
    choices = [*values, None]
    picked, other = ([place % len(choices) for place in places] for places in (picked, other))
    whole = _batch(type_, [choices[place] for place in picked])
    backwards = _batch(type_, [choices[place] for place in reversed(picked)])
    parts = digest(whole.slice(0, cut)) + digest(whole.slice(min(cut, len(picked))))
    assert digest(whole) == digest(backwards) == parts
    same = Counter(picked) == Counter(other)
    assert (digest(_batch(type_, [choices[place] for place in other])) == digest(whole)) is same


def test_rows_are_compared_as_a_whole() -> None:
    pairs = [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    crossed = [{"a": 1, "b": 4}, {"a": 3, "b": 2}]
    assert digest(pa.RecordBatch.from_pylist(pairs)) != digest(pa.RecordBatch.from_pylist(crossed))


def test_every_nan_is_one_and_maps_have_no_order() -> None:
    assert digest(_batch(pa.float64(), [NAN])) == digest(_batch(pa.float64(), [OTHER_NAN]))
    kind = TYPES["map"][0]
    assert digest(_batch(kind, [[("a", 1), ("b", 2)]])) == digest(
        _batch(kind, [[("b", 2), ("a", 1)]])
    )


def test_how_arrow_keeps_a_value_does_not_count() -> None:
    texts = ["x", None, "y", "x"]
    kinds = [pa.string(), pa.large_string()]
    plain, large = (digest(_batch(kind, texts)) for kind in kinds)
    hidden = pa.ListArray.from_arrays(
        pa.array([0, 2, 3]), pa.array([7, 8, 9]), mask=pa.array([True, False])
    )
    assert plain == large
    assert digest(pa.record_batch([hidden], ["a"])) == digest(
        _batch(pa.list_(pa.int64()), [None, [9]])
    )


def test_no_rows_have_the_digest_of_nothing() -> None:
    assert digest(_batch(pa.list_(pa.struct([("x", pa.int64())])), [])) == RowsDigest()


def _batch(kind: pa.DataType, values: list[Any]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, kind)], ["a"])
