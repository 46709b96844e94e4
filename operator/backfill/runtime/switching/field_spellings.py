"""Names of fields in a program that columns of its sources come near, in another spelling: for
messages about programs whose functions decode records.
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from pyspark.sql.types import ArrayType, DataType, StructType

from backfill.api.field_types import bare
from backfill.outputs.null_columns import Spellings
from backfill.runtime.settings import RuntimeSettings
from backfill.runtime.source.source_frame import planned_tables, source_schema
from backfill.runtime.switching.program_lines import is_beside_main_file


def field_spellings(settings: RuntimeSettings) -> Spellings:
    """By their names in the program, the places of the sources and their columns."""
    texts: defaultdict[str, list[str]] = defaultdict(list)
    for module in tuple(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file is not None and is_beside_main_file(file):
            for text in _texts(file):
                texts[bare(text)].append(text)
    found: dict[str, tuple[int, str]] = {}
    tables = planned_tables(settings.plan_workspace)
    for place, source in enumerate(settings.sources):
        value = source.live.kafka.value
        if value.column is not None or source.name not in tables:
            continue
        columns = set(_names(source_schema(tables[source.name], with_record=False)))
        for column in sorted(columns):
            for text in texts[bare(column)]:
                if text not in columns and text not in value.fields:
                    found.setdefault(text, (place, column))
    return found


@lru_cache(maxsize=256)
def _texts(file: str) -> frozenset[str]:
    """The names that are texts in a file of the program."""
    try:
        nodes = ast.walk(ast.parse(Path(file).read_bytes()))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return frozenset()
    texts = (each.value for each in nodes if isinstance(each, ast.Constant))
    return frozenset(each for each in texts if isinstance(each, str) and each.isidentifier())


def _names(kind: DataType) -> Iterator[str]:
    if isinstance(kind, ArrayType):
        yield from _names(kind.elementType)
    if isinstance(kind, StructType):
        for field in kind:
            yield field.name
            yield from _names(field.dataType)
