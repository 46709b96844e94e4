"""Compacts tables, which PyIceberg does not."""

from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Summary


def compact(table: Table) -> None:
    """Writes all files anew as one, as a rewrite of data files does."""
    rows = table.refresh().scan().to_arrow()
    with table.transaction() as change, change.update_snapshot().overwrite() as snapshot:
        for task in table.scan().plan_files():
            snapshot.delete_data_file(task.file)
        for file in _dataframe_to_data_files(table.metadata, rows, table.io):
            snapshot.append_data_file(file)
        summarize = snapshot._summary

        def summary(properties: dict[str, str]) -> Summary:
            return Summary(Operation.REPLACE, **summarize(properties).additional_properties)

        snapshot._summary = summary  # type: ignore[method-assign,assignment]
    table.refresh()
