"""Digests of rows that do not depend on their order. Two multisets of rows are equal if and only if
their digests are, except with a probability of 2**-128.

Values that users consider equal have the same digest: all NaN, and maps with the same entries in
any order. Zero and negative zero differ, as they do in the file.
"""

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Hashes = npt.NDArray[np.uint64]
"""128 bits for each value, as two rows of 64."""

_MASK = (1 << 64) - 1
_SEEDS = np.array([[0x243F6A8885A308D3], [0x13198A2E03707344]], np.uint64)
_NULL = np.array([[0xA4093822299F31D0], [0x082EFA98EC4E6C89]], np.uint64)
_STEP = np.uint64(0x9E3779B97F4A7C15)
_TEXT_OR_BYTES = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
)
_NAN = np.uint64(0x7FF8000000000000)


@dataclass(frozen=True, slots=True)
class RowsDigest:
    """Digest of a multiset of rows."""

    rows: int = 0
    first: int = 0
    second: int = 0

    def __add__(self, other: "RowsDigest") -> "RowsDigest":
        """The digest of both multisets together."""
        first, second = (self.first + other.first) & _MASK, (self.second + other.second) & _MASK
        return RowsDigest(self.rows + other.rows, first, second)


def digest(rows: pa.RecordBatch) -> RowsDigest:
    """The digest of the rows of a batch, by their values and the order of their columns.

    Names do not count.

    Raises:
        TypeError: a column has a type that Iceberg lacks.
    """
    first, second = row_hashes(rows).sum(axis=1, dtype=np.uint64)
    return RowsDigest(rows.num_rows, int(first), int(second))


def row_hashes(rows: pa.RecordBatch) -> Hashes:
    """A hash of each row of a batch, by its values and the order of its columns.

    Raises:
        TypeError: a column has a type that Iceberg lacks.
    """
    return _combined([_hashes(column) for column in rows.columns], rows.num_rows)


def _hashes(array: pa.Array) -> Hashes:
    if len(array) == 0:
        return np.zeros((2, 0), np.uint64)
    hashes = _hashes_of_values(array)
    return np.where(_is_null(array), _NULL, hashes) if array.null_count else hashes


def _is_null(array: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(array.is_null().to_numpy(zero_copy_only=False), dtype=np.bool_)


def _hashes_of_values(array: pa.Array) -> Hashes:
    """Hashes of values, with arbitrary ones for nulls."""
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return _hashes_of_values(array.storage)
    if pa.types.is_null(kind):
        return np.broadcast_to(_NULL, (2, len(array)))
    if pa.types.is_struct(kind):
        return _combined([_hashes(child) for child in array.flatten()], len(array))
    if pa.types.is_map(kind):
        return _of_map(array)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _of_lists(array, ordered=True)
    if pa.types.is_floating(kind):
        return _combined([_numbers(_float_bits(array))], len(array))
    if pa.types.is_decimal128(kind) or pa.types.is_fixed_size_binary(kind):
        return _of_fixed_bytes(array)
    if any(is_one(kind) for is_one in _TEXT_OR_BYTES):
        return _of_bytes(array)
    return _numbers(_integers(array))


def _integers(array: pa.Array) -> npt.NDArray[np.uint64]:
    kind = array.type
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        array = array.cast(pa.int32())
    elif not (
        pa.types.is_boolean(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_time64(kind)
    ):
        raise TypeError(f"values of type {kind} cannot be compared")
    return np.asarray(array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)).view(
        np.uint64
    )


def _float_bits(array: pa.Array) -> npt.NDArray[np.uint64]:
    values = np.asarray(array.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False))
    return np.where(np.isnan(values), _NAN, values.view(np.uint64))


def _of_fixed_bytes(array: pa.Array) -> Hashes:
    width = array.type.byte_width
    data = np.frombuffer(array.buffers()[1], np.uint8, len(array) * width, array.offset * width)
    padded = np.zeros((len(array), -(-width // 8) * 8), np.uint8)
    padded[:, :width] = data.reshape(len(array), width)
    return _combined([_numbers(word) for word in padded.view(np.uint64).T], len(array))


def _of_bytes(array: pa.Array) -> Hashes:
    """Hashes of binary values. Each value is hashed once in a batch, however often it occurs."""
    encoded = array.dictionary_encode()
    values = encoded.dictionary.cast(pa.large_binary()).to_pylist()
    # all values are null, so any hash will do
    digests = b"".join(blake2b(value, digest_size=16).digest() for value in values) or bytes(16)
    places = np.asarray(encoded.indices.fill_null(0).to_numpy(zero_copy_only=False))
    return np.frombuffer(digests, np.uint64).reshape(-1, 2).T[:, places]


def _of_map(array: pa.MapArray) -> Hashes:
    entries = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
    return _of_elements(_hashes(entries), array, ordered=False)


def _of_lists(array: pa.ListArray, *, ordered: bool) -> Hashes:
    return _of_elements(_hashes(array.values), array, ordered=ordered)


def _of_elements(elements: Hashes, array: pa.Array, *, ordered: bool) -> Hashes:
    """Hashes of lists, given the hashes of all elements that their offsets refer to."""
    offsets = np.asarray(array.offsets.to_numpy()).astype(np.int64)
    starts, ends = offsets[:-1], offsets[1:]
    if ordered:
        places = np.zeros(elements.shape[1], np.uint64)
        places[starts[0] : ends[-1]] = np.arange(starts[0], ends[-1]) - np.repeat(
            starts, ends - starts
        )
        elements = _mixed(elements + _mixed(places * _STEP))
    sums = np.concatenate(
        [np.zeros((2, 1), np.uint64), np.cumsum(elements, axis=1, dtype=np.uint64)], axis=1
    )
    return _combined(
        [sums[:, ends] - sums[:, starts], _numbers((ends - starts).view(np.uint64))], len(array)
    )


def _numbers(values: npt.NDArray[np.uint64]) -> Hashes:
    return _mixed(values[np.newaxis, :] ^ _SEEDS)


def _combined(parts: list[Hashes], length: int) -> Hashes:
    """Hashes of tuples, given the hashes of their parts."""
    hashes = np.broadcast_to(_SEEDS, (2, length))
    for part in parts:
        hashes = _mixed(hashes * _STEP + part)
    return hashes


def _mixed(values: Hashes) -> Hashes:
    """Makes every bit of the result depend on every
    bit of the value (the finalizer of SplitMix64).
    """
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
