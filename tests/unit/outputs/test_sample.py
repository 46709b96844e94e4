"""Some rows of a result are shown beside what production has, by the keys of the output."""

from typing import Any

import pytest
from pyiceberg.catalog import Catalog

from backfill.api.errors import BackfillError
from backfill.api.output import Output
from backfill.outputs.publish import publish
from backfill.outputs.sample import Pair, sample
from staged import HOUR_US, RESULT, WINDOW, make_table, output, rows_of, stage


def sampled(asked: Output, rows: int = 9, published: int | None = None) -> list[Pair]:
    pairs = sample(asked, RESULT, WINDOW, rows=rows, published=published)
    return sorted(pairs, key=lambda pair: str(pair.result))


def keyed(**fields: Any) -> Output:
    return output().model_copy(update={"keys": ("id",), **fields})


def test_each_row_is_beside_those_with_its_keys_in_the_window(lake: Catalog) -> None:
    table = make_table(lake)
    table.append(rows_of([(1, 0), (2, HOUR_US), (2, HOUR_US), (9, 0)], "production"))
    stage(table, 0, [(1, 0), (2, HOUR_US), (3, HOUR_US)])
    first, second, third = sampled(keyed())
    assert [len(each.production) for each in (first, second, third)] == [1, 2, 0]
    assert first.production[0]["id"] == 1
    assert first.differs == ("who",)
    assert second.differs == (), "it is unknown which of two rows it is"
    assert len(sampled(keyed(), rows=2)) == 2
    assert [each.production for each in sampled(output())] == [(), (), ()]


def test_of_a_published_result_production_is_what_was_there_before(lake: Catalog) -> None:
    table = make_table(lake)
    table.append(rows_of([(1, 0)], "production"))
    base = table.metadata.current_snapshot_id
    stage(table, 0, [(1, 0), (2, 0)])
    asked = keyed()
    done = publish(asked, RESULT, WINDOW, base)
    first, second = sampled(asked, published=done.snapshot_id)
    assert [row["id"] for row in first.production] == [1]
    assert first.differs == ("who",)
    assert second.production == ()


def test_what_is_not_staged_is_said(lake: Catalog) -> None:
    make_table(lake)
    with pytest.raises(BackfillError, match="has no staged rows of"):
        sampled(keyed())
