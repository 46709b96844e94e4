"""A sink that production could have: each micro-batch is a file with a JSON object in a line."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage


@dataclass
class Lines(WriterCommitMessage):
    lines: tuple[str, ...]


class JsonLines(DataSource):
    @classmethod
    def name(cls) -> str:
        return "json_lines"

    def streamWriter(self, schema: Any, overwrite: bool) -> "JsonLinesWriter":
        return JsonLinesWriter(Path(self.options["path"]))


class JsonLinesWriter(DataSourceStreamWriter):
    def __init__(self, directory: Path):
        self._directory = directory

    def write(self, iterator: Iterator[Any]) -> Lines:
        return Lines(tuple(json.dumps(row.asDict(), default=str) for row in iterator))

    def commit(self, messages: Any, batchId: int) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        lines = [line for message in messages for line in message.lines]
        (self._directory / f"{batchId}.json").write_text("\n".join(lines))

    def abort(self, messages: Any, batchId: int) -> None:
        """The batch is run again."""


def rows_in(directory: Path) -> list[dict[str, Any]]:
    """What was written."""
    files = directory.glob("*.json")
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]
