"""The fields that a query decodes from the JSON of records and uses, by its logical plan."""

import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    MapType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from backfill.runtime.catalyst import (
    children_of,
    conjuncts,
    corrupt_record_column,
    elements,
    id_of,
    kind_of,
    nodes_of,
    type_of,
    with_used_columns,
)
from backfill.runtime.queries.logical_plan import BY_REFERENCE, HAND_ON_COLUMNS
from backfill.runtime.source.clock import is_source, source_of, topic_of
from backfill.runtime.source.json_values import is_json_value
from backfill.runtime.source.record_columns import TOPIC
from backfill.runtime.source.record_fields import ITEM, TEXT, DecodedField
from backfill.runtime.spark_versions import VariantType

_FOLLOWED = BY_REFERENCE | HAND_ON_COLUMNS | {"Project", "WithCTE"}
_SAME_TEXT = {
    "Concat",
    "Decode",
    "Lower",
    "RegExpReplace",
    "StringDecode",
    "StringReplace",
    "StringTranslate",
    "StringTrim",
    "StringTrimLeft",
    "StringTrimRight",
    "Substring",
    "Upper",
}
"""Functions of a record's text that leave its fields in it: a prefix is added or cut, or escapes
are removed.
"""
_ONE_OF = {"CaseWhen", "Coalesce", "If", "Nvl"}
"""Functions that give one of their operands."""
_PARSES = {
    "GetTimestamp",
    "ParseToDate",
    "ParseToTimestamp",
    "ToUnixTimestamp",
    "TryToTimestampExpression",
    "UnixTimestamp",
}
"""Functions of a string and the pattern of the time in it."""
_FORMS = {
    "AvroDataToCatalyst": "Avro",
    "CsvToStructs": "CSV",
    "ProtobufDataToCatalyst": "Protobuf",
    "RegExpExtract": "text",
    "RegExpExtractAll": "text",
    "SplitPart": "delimited text",
    "StringSplit": "delimited text",
    "SubstringIndex": "delimited text",
    "XmlToStructs": "XML",
}
"""Functions that decode what is not JSON."""
_CASTS = {"Cast", "TryCast"}
_EQUALITIES = {"EqualNullSafe", "EqualTo", "In"}
_TIMES = DateType | TimestampType | TimestampNTZType
_DECODES = {
    "ElementAt",
    "GetArrayItem",
    "GetArrayStructFields",
    "GetJsonObject",
    "GetMapValue",
    "GetStructField",
    "JsonToStructs",
    "ParseJson",
    "VariantGet",
}
_HAND_ON = _CASTS | _DECODES | _SAME_TEXT | _ONE_OF | {"Alias"}
_PATTERNS = {
    "timestampformat": "timestamp",
    "timestampntzformat": "timestamp_ntz",
    "dateformat": "date",
}
_STEP = re.compile(r"\.([^.\[*]+)|\['([^']*)'\]|\[(\d+|\*)\]")


@dataclass(frozen=True)
class _Part:
    """What an expression has of a record."""

    sources: tuple[str, ...]
    """The sources that the record may be of: several in a union of topics."""
    field: DecodedField | None = None
    """None for the text of the whole record."""
    skipped: int = 0
    """Number of characters or bytes that are left out at the start of the record."""

    def below(self, kind: DataType, *path: str) -> "_Part":
        assert self.field is not None
        return replace(self, field=replace(self.field, path=(*self.field.path, *path), kind=kind))

    @property
    def text(self) -> tuple[str, ...] | None:
        """The path to the JSON text that it is; None if it is no text."""
        if self.field is None:
            return ()
        return (*self.field.path, TEXT) if isinstance(self.field.kind, StringType) else None


def decoded_fields(plan: JavaObject, spark: SparkSession) -> dict[str, list[DecodedField]]:
    """By source, the fields that a query of an analyzed plan decodes and uses, each once."""
    return _Reader(spark).read(with_used_columns(plan, spark))


def records_in(plan: JavaObject, spark: SparkSession) -> dict[int, tuple[str, ...]]:
    """By place in the output of an analyzed plan, the sources of which a column has the records."""
    reader = _Reader(spark)
    reader.read(plan)
    parts = [reader.parts.get(id_of(column)) for column in elements(plan.output())]
    return {
        place: part.sources
        for place, part in enumerate(parts)
        if part is not None and part.field is None
    }


def decoded_of_batch(
    plan: JavaObject,
    rows: AbstractSet[int],
    records: Mapping[int, tuple[str, ...]],
    spark: SparkSession,
) -> dict[str, list[DecodedField]]:
    """The same of what a function makes of a batch: ``rows`` are those of the batch in Spark, and
    ``records`` what :func:`records_in` says of its query.
    """
    reader = _Reader(spark, of_stream=False)
    plan = with_used_columns(plan, spark)
    for node in nodes_of(plan):
        if kind_of(node) == "LogicalRDD" and int(node.rdd().id()) in rows:
            for place, column in enumerate(elements(node.output())):
                if place in records:
                    reader.parts[id_of(column)] = _Part(records[place])
    return reader.read(plan)


@dataclass
class _Reader:
    spark: SparkSession
    of_stream: bool = True
    """Whether only nodes with rows of a stream matter."""
    parts: dict[int, _Part] = field(default_factory=dict)
    """What columns have of records, by their identity."""
    found: dict[str, dict[DecodedField, None]] = field(default_factory=dict)
    topics: set[int] = field(default_factory=set)
    """Identities of the columns that have a record's topic."""
    corrupt: set[str] = field(default_factory=set)
    """Names of columns for text that is not a record."""
    source: str | None = None
    """The source of the rows of the node that is looked at; None if there are several."""

    def read(self, plan: JavaObject) -> dict[str, list[DecodedField]]:
        self.corrupt.add(corrupt_record_column(self.spark))
        for node in _from_below(plan):
            self._node(node)
        for column in elements(plan.output()):
            self._use(column)
        return {source: list(fields) for source, fields in self.found.items()}

    def _node(self, node: JavaObject) -> None:
        kind = kind_of(node)
        not_read = self.of_stream and not node.isStreaming()
        if not_read or not children_of(node) or is_source(node):
            return
        sources = {source_of(each) for each in nodes_of(node) if is_source(each)}
        self.source = sources.pop() if len(sources) == 1 else None
        if kind == "Generate":
            self._generate(node)
            return
        if kind not in _FOLLOWED:  # as a union, a function may use all of what it is given
            for child in children_of(node):
                for column in elements(child.output()):
                    self._use(column)
        if kind == "Union":
            self._union(node)
        if kind == "Filter":
            self._filter(node)
        for expression in elements(node.expressions()):
            if kind == "Project" and kind_of(expression) == "AttributeReference":
                continue
            part = self._part(expression)
            if kind_of(expression) == "Alias" and part is not None:
                self.parts[id_of(expression)] = part
            elif kind_of(expression) == "Alias" and self._is_topic(expression.child()):
                self.topics.add(id_of(expression))
            else:
                self._use(expression)

    def _union(self, node: JavaObject) -> None:
        """Records of several sources that are decoded together. The columns of a union have the
        identities of its first child's.
        """
        given = [elements(child.output()) for child in children_of(node)]
        for column, *columns in zip(elements(node.output()), *given, strict=True):
            if not all(map(self._is_topic, columns)):
                self.topics.discard(id_of(column))
            parts = [self.parts.get(id_of(each)) for each in columns]
            records = [each for each in parts if each is not None and each.field is None]
            self.parts.pop(id_of(column), None)
            if len(records) == len(columns):
                sources = dict.fromkeys(name for each in records for name in each.sources)
                self.parts[id_of(column)] = _Part(tuple(sources))

    def _is_topic(self, expression: JavaObject) -> bool:
        return kind_of(expression) == "AttributeReference" and (
            id_of(expression) in self.topics or str(expression.name()) == TOPIC
        )

    def _filter(self, node: JavaObject) -> None:
        """Leaves the sources whose topics a filter names."""
        topics = {topic_of(each): source_of(each) for each in nodes_of(node) if is_source(each)}
        for condition in conjuncts(node.condition()):
            if kind_of(condition) not in _EQUALITIES:
                continue
            operands = children_of(condition)
            literals = [each for each in operands if each.foldable()]
            others = [each for each in operands if not each.foldable()]
            if len(others) != 1 or not self._is_topic(others[0]):
                continue
            named = {topics.get(str(each.eval(None))) for each in literals}
            for column in elements(node.output()):
                part = self.parts.get(id_of(column))
                kept = part and tuple(each for each in part.sources if each in named)
                if part and kept:
                    self.parts[id_of(column)] = replace(part, sources=kept)

    def _generate(self, node: JavaObject) -> None:
        generator = node.generator()
        kind, operands = kind_of(generator), children_of(generator)
        part = self._part(operands[0])
        outputs = elements(node.generatorOutput())
        if part is not None and kind == "JsonTuple" and part.text is not None:
            for name in operands[1:]:
                if name.foldable():
                    path = (*part.text, str(name.eval(None).toString()))
                    self._note(part, DecodedField(path, StringType()))
        elif part is not None and part.field is not None and kind in {"Explode", "PosExplode"}:
            of = part.field.kind
            if isinstance(of, ArrayType):
                self.parts[id_of(outputs[-1])] = part.below(of.elementType, ITEM)
            else:
                self._use(generator)
        else:
            self._use(generator)

    def _use(self, expression: JavaObject) -> None:
        """Notes the fields that an expression uses."""
        part = self._part(expression)
        if part is not None:
            if part.field is not None:
                self._note(part, part.field)
            return
        kind, operands = kind_of(expression), children_of(expression)
        if kind == "StructsToJson" and is_json_value(expression):
            return
        used = _PARSES | _CASTS | _FORMS.keys() | {"IsNull", "IsNotNull"}
        of = self._part(operands[0]) if kind in used else None
        if of is None or not self._uses(kind, expression, operands, of):
            for each in operands:
                self._use(each)

    def _uses(
        self, kind: str, expression: JavaObject, operands: list[JavaObject], of: _Part
    ) -> bool:
        """Notes what a function uses of its first operand, if that is not all of it."""
        to = type_of(expression) if kind in _CASTS else None
        if of.field is None:
            form = "a number" if isinstance(to, NumericType) else _FORMS.get(kind)
            if form is not None:
                self._note(of, DecodedField((), type_of(expression), form=form))
            return form is not None
        if kind in {"IsNull", "IsNotNull"} and isinstance(of.field.kind, StructType):
            self._note(of, replace(of.field, kind=StructType()))
            return True
        is_text = isinstance(of.field.kind, StringType | VariantType)
        if is_text and isinstance(to, NumericType):
            self._note(of, replace(of.field, kind=StringType(), number=to))
            return True
        to_time = isinstance(to, _TIMES) or (kind in _PARSES and len(operands) == 1)
        if is_text and (kind in {"IsNull", "IsNotNull"} or to_time):
            self._note(of, replace(of.field, by_value=True))
            return True
        by_pattern = kind in _PARSES and len(operands) > 1 and operands[1].foldable()
        if by_pattern and isinstance(of.field.kind, StringType):
            self._parses(expression, of, str(operands[1].eval(None).toString()))
            return True
        return False

    def _parses(self, expression: JavaObject, of: _Part, pattern: str) -> None:
        zone = expression.timeZoneId()
        assert of.field is not None
        self._note(
            of,
            replace(
                of.field,
                patterns=(("string", pattern),),
                zone=str(zone.get()) if zone.isDefined() else "UTC",
            ),
        )

    def _note(self, part: _Part, decoded: DecodedField) -> None:
        kind = decoded.kind
        decoded = replace(decoded, skipped=part.skipped)
        if isinstance(kind, StructType) and self.corrupt & set(kind.names):
            kind = StructType([each for each in kind if each.name not in self.corrupt])
            decoded = replace(decoded, kind=kind)
        if decoded.path and decoded.path[-1] in self.corrupt:
            return
        if len(part.sources) > 1:
            decoded = replace(decoded, among=part.sources)
        for source in part.sources:
            self.found.setdefault(source, {})[decoded] = None

    def _part(self, expression: JavaObject) -> _Part | None:
        kind = kind_of(expression)
        if kind == "AttributeReference":
            return self.parts.get(id_of(expression))
        if kind == "StructsToJson":
            made = self.source is not None and is_json_value(expression)
            return _Part((self.source,)) if made and self.source else None
        if kind not in _HAND_ON:
            return None
        operands = children_of(expression)
        if kind in _ONE_OF:
            records = [each for each in map(self._part, operands) if each and each.field is None]
            alike = len({each.sources for each in records}) == 1
            return min(records, key=lambda each: each.skipped) if alike else None
        if kind == "Concat":
            operands = operands[-1:]
        of = self._part(operands[0])
        if of is None:
            return None
        if kind == "Alias":
            return of
        if kind in _CASTS:
            to = str(expression.dataType().simpleString())
            same = to in {"string", "binary"} if of.field is None else to == "string"
            return of if same and of.text is not None else None
        if of.field is None and kind in _SAME_TEXT:
            skipped = _skipped(operands[1]) if kind == "Substring" else 0
            return replace(of, skipped=of.skipped + skipped)
        return self._below(kind, expression, operands, of)

    def _below(
        self, kind: str, expression: JavaObject, operands: list[JavaObject], of: _Part
    ) -> _Part | None:
        text, of_kind = of.text, None if of.field is None else of.field.kind
        if kind == "JsonToStructs" and text is not None:
            return replace(of, field=self._decoded(expression, text))
        if kind == "GetJsonObject" and text is not None and operands[1].foldable():
            path = _steps(str(operands[1].eval(None).toString()))
            decoded = DecodedField((*text, *(path or ())), StringType())
            return None if path is None else replace(of, field=decoded)
        if kind == "ParseJson" and text is not None:
            return replace(of, field=DecodedField(text, VariantType()))
        if kind == "VariantGet" and isinstance(of_kind, VariantType) and operands[1].foldable():
            path, to = _steps(str(operands[1].eval(None).toString())), type_of(expression)
            found = None if path is None else of.below(VariantType(), *path)
            if found is None or found.field is None:
                return found
            if isinstance(to, NumericType):
                return replace(found, field=replace(found.field, kind=StringType(), number=to))
            return replace(found, field=replace(found.field, by_value=isinstance(to, _TIMES)))
        if kind == "GetStructField":
            return of.below(type_of(expression), str(expression.extractFieldName()))
        if kind == "GetArrayStructFields":
            name, item = str(expression.field().name()), type_of(expression)
            assert isinstance(item, ArrayType)
            return of.below(item.elementType, ITEM, name)
        if kind in {"GetArrayItem", "ElementAt"} and isinstance(of_kind, ArrayType):
            return of.below(type_of(expression), ITEM)
        by_key = kind in {"GetMapValue", "ElementAt"} and isinstance(of_kind, MapType)
        if by_key and operands[1].foldable():
            return of.below(type_of(expression), str(operands[1].eval(None).toString()))
        return None

    def _decoded(self, expression: JavaObject, text: tuple[str, ...]) -> DecodedField:
        """What ``from_json`` decodes of a text."""
        given = elements(expression.options().toSeq())
        options = {str(each._1()).lower(): str(each._2()) for each in given}
        if "columnnameofcorruptrecord" in options:
            self.corrupt.add(options["columnnameofcorruptrecord"])
        zone = expression.timeZoneId()
        session = str(zone.get()) if zone.isDefined() else "UTC"
        return DecodedField(
            text,
            type_of(expression),
            tuple((kind, options[name]) for name, kind in _PATTERNS.items() if name in options),
            options.get("timezone", session),
            "timezone" in options,
        )


def _skipped(position: JavaObject) -> int:
    """How much a substring from a position leaves out at the start; zero if it is computed."""
    return max(int(position.eval(None)) - 1, 0) if position.foldable() else 0


def _steps(path: str) -> tuple[str, ...] | None:
    """The fields of a path of ``get_json_object``; None if it is not understood."""
    if not path.startswith("$"):
        return None
    steps: list[str] = []
    at = 1
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            return None
        steps.append(step[1] or step[2] or ITEM)
        at = step.end()
    return tuple(steps)


def _from_below(plan: JavaObject) -> Iterator[JavaObject]:
    """Every node of a plan, each after its children."""
    for child in children_of(plan):
        yield from _from_below(child)
    yield plan
