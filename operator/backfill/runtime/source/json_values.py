"""The row of a table as the JSON text of a Kafka record's value."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

JSON_OPTIONS: Final = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",  # the default writes only milliseconds
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""How it is written. :mod:`backfill.runtime.batch.straight_json` knows it by these."""


def json_value(names: Sequence[str]) -> Column:
    """The columns with these names as bytes of a JSON object; those that are null are left out."""
    columns = (F.col(f"`{name.replace('`', '``')}`") for name in names)
    return F.to_json(F.struct(*columns), JSON_OPTIONS).cast("binary")
