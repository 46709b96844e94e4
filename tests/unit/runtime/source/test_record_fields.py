"""Which column a decoded field is written from, as far as that needs no Spark."""

import pytest
from pyspark.sql.types import DataType, LongType, StringType, StructType

from backfill.api.errors import InvalidPlanInput
from backfill.api.source import KafkaValue
from backfill.runtime.source.record_fields import ITEM, TEXT, DecodedField, RecordFields

COLUMNS = (
    StructType()
    .add("id", "long")
    .add("ID2", "long")
    .add("id2", "long")
    .add("user", StructType().add("name", "string"))
    .add("raw", "string")
    .add("at", "timestamp")
)


def mismatches(*decoded: DecodedField, **value: object) -> list[tuple[str, str]]:
    fields = RecordFields(COLUMNS, KafkaValue.model_validate(value))
    return [(each.name, each.why) for each in fields.fit(decoded)]


def at(*path: str, kind: DataType | None = None) -> DecodedField:
    return DecodedField(path, kind or LongType())


def test_a_column_is_not_renamed_for_one_field_and_lost_for_another() -> None:
    assert mismatches(at("Id"), at("id")) == [("Id", "it is decoded as id as well")]
    assert mismatches(at("Id"), at("ID")) == [("ID", "it is decoded as Id as well")]
    assert mismatches(at("Id"), at("Id")) == []


def test_of_columns_that_differ_only_in_case_none_is_guessed() -> None:
    assert mismatches(at("id2")) == []
    assert mismatches(at("Id2")) == [
        ("Id2", "several columns or fields differ only in case: ID2, id2")
    ]
    assert mismatches(at("Id2"), fields={"Id2": "id2"}) == []


def test_text_that_the_table_has_is_not_compared_with_its_columns() -> None:
    assert mismatches(at("raw", TEXT, "anything", ITEM, "x")) == []
    assert mismatches(at("raw", "anything")) == [("raw", "its column has the type string")]
    assert mismatches(at("raw", "anything"), fields={"raw": "raw"}) == []
    assert mismatches(at("user", TEXT, "surname", kind=StringType())) == [
        ("user.surname", "its column has no such field, but name")
    ]


def test_fields_that_are_allowed_to_be_absent_are_so_with_all_below_them() -> None:
    decoded = at("user", "address", "zip"), at("coupon", "code")
    assert len(mismatches(*decoded)) == 2
    assert mismatches(*decoded, absent=["user.address", "coupon"]) == []


def test_times_in_two_patterns_are_not_written_in_one_of_them() -> None:
    one, two = (
        DecodedField(("at",), StringType(), (("string", pattern),)) for pattern in ("yyyy", "HH:mm")
    )
    assert mismatches(one, two) == [
        ("at", "it is decoded in several ways, which need different text")
    ]
    assert mismatches(one, two, timestampFormat="yyyy HH:mm") == []


def test_a_refusal_has_all_that_is_missing_within_an_envelope() -> None:
    fields = RecordFields(COLUMNS, KafkaValue())
    found = fields.fit([at("after", "ID"), at("after", "at"), at("_raw", kind=StringType())])
    problem = fields.problem(0, "lake.raw.a", "a", found)
    assert "after.ID (bigint): no such column, similar: id, id2;" in problem.message
    assert problem.fix == (
        "set envelope: after; timestampUnit: ms (or s, us, ns); fields: {_raw: raw}; or, for fields"
        " that production's records lack as well, absent: [_raw]"
    )


def test_a_field_of_a_column_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidPlanInput, match="from the column uid, which does not exist"):
        mismatches(fields={"userId": "uid"})
