"""CEL validation rules: what the API server checks between fields, beyond the schema of each.

They are the rules of the models' validators and of ``api/manifests/spec_rules.py``. There the
command line reports every problem at once; here an invalid resource is not stored at all. Nothing
is defaulted within lists (see ``schema.py``), so rules about items of a list check first whether a
field is set.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from backfill.api.backfill import Backfill
from backfill.api.base import Model
from backfill.api.decision import BackfillDecision, BackfillDecisionSpec
from backfill.api.forbidden_changes import ADJUSTABLE_FIELDS, MUTABLE_FIELDS, MUTABLE_IN_OUTPUTS
from backfill.api.manifests.spec_rules import MOST_STEPS
from backfill.api.output import Delivery, Output, Publish, PublishMode, Validate
from backfill.api.pods import PodResources, Scaling
from backfill.api.quantities import DURATION_IN_MILLISECONDS
from backfill.api.source import KafkaColumns, KafkaValue, SnapshotRef
from backfill.api.spec import LIVE, BackfillSpec, Window
from backfill.protocol.split_assignment import SplitAssignmentSpec, SplitAssignmentStatus


@dataclass(frozen=True, slots=True)
class Rule:
    """A CEL expression that must be true, and the message if it is not."""

    expression: str
    message: str
    field: str = ""
    """The field that the message is about. Default: the object that has the rule."""

    def to_manifest(self) -> dict[str, str]:
        """The rule in the form of a schema."""
        place = {"fieldPath": f".{self.field}"} if self.field else {}
        return {"rule": self.expression, "message": self.message, **place}


def _some_time(field: str) -> str:
    """CEL: whether a duration is longer than zero."""
    return f"self.{field}.matches('[1-9]')"


def _moment(field: str) -> str:
    """CEL: a time, of which a date is midnight UTC."""
    return f"timestamp({field} + ({field}.size() == 10 ? 'T00:00:00Z' : ''))"


def _milliseconds(field: str) -> str:
    return DURATION_IN_MILLISECONDS.replace("self", f"self.{field}")


_HAS_TOPIC = "has({0}.live) && has({0}.live.kafka) && has({0}.live.kafka.topic)"

_SPEC: Final = (
    Rule(
        _some_time("maxMisalignment"),
        "must be greater than zero; a step spans half of it",
        "maxMisalignment",
    ),
    Rule(
        "!has(self.publish) || !has(self.sources) || self.sources.size() == 0",
        "has no effect, because spec.sources lists what is read; set publish.mode of each output,"
        " or remove sources, which are then found",
        "publish",
    ),
    Rule(
        "!has(self.publish) || !has(self.outputs) || self.outputs.all(o,"
        " o.?publish.?mode.orValue('Append') != 'None')",
        "publish.mode None of an output has no effect, because spec.publish is the mode of all"
        " outputs that have none; remove spec.publish, and set publish.mode of each output that is"
        " to be published",
        "publish",
    ),
    Rule(
        f"!has(self.sources) || self.sources.all(s, !({_HAS_TOPIC.format('s')})"
        f" || self.sources.exists_one(t, {_HAS_TOPIC.format('t')}"
        " && t.live.kafka.topic == s.live.kafka.topic))",
        "two sources have the same topic; list every topic once",
        "sources",
    ),
    Rule(
        "!has(self.outputs) || self.outputs.all(o, self.outputs.exists_one(p, p.table == o.table))",
        "two outputs have the same table; create one Backfill for each output, and list the other"
        " output's query in spec.ignoredQueries",
        "outputs",
    ),
    Rule(
        "!has(self.outputs) || self.outputs.all(o, !has(o.publish) || !has(o.publish.location)"
        " || self.outputs.exists_one(p, has(p.publish) && has(p.publish.location)"
        " && p.publish.location == o.publish.location))",
        "two outputs have the same publish.location; give every output its own directory",
        "outputs",
    ),
    Rule(
        "!has(self.outputs) || !has(self.sources) || self.sources.all(s, (has(s.snapshot) &&"
        " (has(s.snapshot.id) || has(s.snapshot.asOf))) ||"
        " !self.outputs.exists(o, o.table == s.table))",
        "the table of an output is also the table of a source, so the application would read the"
        " old rows of its own output; write to another table, or choose the rows to read with the"
        " source's snapshot (id or asOf)",
        "outputs",
    ),
    Rule(
        "!has(self.ignoredQueries) || !has(self.outputs) || self.ignoredQueries.all(q,"
        " self.outputs.all(o, o.name != q))",
        "contains the name of an output; remove it here to run the query, or remove the output",
        "ignoredQueries",
    ),
    Rule(
        "!has(self.catalogs) || self.catalogs.size() == 0 || !has(self.sources)"
        " || self.sources.all(s, self.catalogs.exists(c, c.name == s.table.split('.')[0]))",
        "a source's table is in a catalog that spec.catalogs does not list; add the catalog there",
        "catalogs",
    ),
    Rule(
        "!has(self.catalogs) || self.catalogs.size() == 0 || !has(self.outputs)"
        " || self.outputs.all(o, self.catalogs.exists(c, c.name == o.table.split('.')[0]))",
        "an output's table is in a catalog that spec.catalogs does not list; add the catalog there",
        "catalogs",
    ),
    Rule(
        "!has(self.catalogs) || self.catalogs.size() == 0 || !has(self.outputs)"
        " || self.outputs.all(o, !has(o.validate) || !has(o.validate.reference)"
        " || self.catalogs.exists(c, c.name == o.validate.reference.table.split('.')[0]))",
        "the reference of an output is in a catalog that spec.catalogs does not list; add the"
        " catalog there",
        "catalogs",
    ),
    Rule(
        "!has(self.catalogs) || self.catalogs.size() == 0 || !has(self.staticTables)"
        " || self.staticTables.all(t, self.catalogs.exists(c, c.name == t.table.split('.')[0]))",
        "a static table is in a catalog that spec.catalogs does not list; add the catalog there",
        "catalogs",
    ),
    Rule(
        "!has(self.staticTables)"
        " || self.staticTables.all(t, self.staticTables.exists_one(u, u.table == t.table))",
        "a static table is listed twice; list it once, with one asOf",
        "staticTables",
    ),
    Rule(
        "!has(self.catalogs) || self.catalogs.all(c, self.catalogs.exists_one(d,"
        " d.name.lowerAscii().replace('_', '-') == c.name.lowerAscii().replace('_', '-')))",
        "the names of two catalogs differ only in case, _ and -, which PyIceberg does not"
        " distinguish; rename one of them",
        "catalogs",
    ),
    Rule(
        "self.ordering.policy != 'Strict' || !has(self.sources) || self.sources.all(s,"
        " has(s.kafka) && has(s.kafka.partitionColumn) && has(s.kafka.offsetColumn))",
        "Strict requires kafka.partitionColumn and kafka.offsetColumn for every source; set them,"
        " or choose another policy",
        "ordering.policy",
    ),
    Rule(
        f"!{_some_time('waitForInput')} || !has(self.sources) || self.sources.all(s,"
        " !has(s.snapshot) || !(has(s.snapshot.id) || has(s.snapshot.asOf)))",
        "cannot be combined with snapshot.id or snapshot.asOf of a source, since a fixed snapshot"
        " never gets more rows; remove waitForInput, or id and asOf of every source",
        "waitForInput",
    ),
    Rule(
        f"!has(self.outputs) || !({_some_time('window.warmUp')} || {_some_time('window.drain')})"
        " || self.outputs.all(o, has(o.timestampColumn))",
        "every output requires a timestampColumn, to exclude the results of warmUp and drain",
        "outputs",
    ),
    Rule(
        "self.execution != 'Batch' || self.ordering.policy != 'Strict'",
        "Batch does not keep the order of rows, which ordering.policy Strict requires; use Auto or"
        " Streaming, or choose another policy",
        "execution",
    ),
    Rule(
        "self.execution != 'Batch' || !has(self.maxRowsPerSecond)",
        "Batch cannot limit its rate, as maxRowsPerSecond requires, and may read rows more than"
        " once; use Auto or Streaming",
        "execution",
    ),
    Rule(
        # zero is refused above, and would be divided by here
        "!self.maxMisalignment.matches('[1-9][0-9]*[a-z]') || self.window.end == 'Live' ||"
        f" 2 * (({_moment('self.window.end')}"
        f" - {_moment('self.window.start')}).getMilliseconds() + {_milliseconds('window.warmUp')} +"
        f" {_milliseconds('window.drain')}) / {_milliseconds('maxMisalignment')} <= {MOST_STEPS}",
        f"would divide the window into more than {MOST_STEPS:,} steps; increase maxMisalignment, or"
        " split the window",
        "maxMisalignment",
    ),
    Rule(
        f"(self.window.end == '{LIVE}') == has(self.handOff)",
        "must be Live with handOff, and a time without it; set handOff: {to: Live} and end: Live,"
        " or remove handOff and set end to a time",
        "window.end",
    ),
    Rule(
        f"!has(self.handOff) || !{_some_time('window.drain')}",
        "cannot be combined with handOff: live traffic closes the results that are still open;"
        " remove drain",
        "window.drain",
    ),
    Rule(
        "!has(self.handOff) || self.ordering.policy != 'Unordered'",
        "Unordered is only for stateless applications, but handOff hands over state; choose another"
        " policy",
        "ordering.policy",
    ),
    Rule(
        "!has(self.handOff) || self.execution != 'Batch'",
        "Batch keeps no state, but handOff hands over state; use Streaming or, equivalently with"
        " handOff, Auto",
        "execution",
    ),
    Rule(
        "!has(self.handOff) || !has(self.sources) || self.sources.all(s,"
        " (has(self.handOff.startingTimestampMargin) || (has(s.kafka) &&"
        " has(s.kafka.partitionColumn) && has(s.kafka.offsetColumn))))",
        "handOff requires kafka.partitionColumn and kafka.offsetColumn for every source, to"
        " determine where live traffic continues; set them or, for tables without these columns,"
        " set handOff.startingTimestampMargin",
        "sources",
    ),
    Rule(
        "!has(self.handOff) || !has(self.handOff.startingTimestampMargin) ||"
        f" {_some_time('handOff.startingTimestampMargin')}",
        "must be greater than zero; set it to the maximum lag of ingestion behind Kafka, such as"
        " 30m",
        "handOff.startingTimestampMargin",
    ),
    Rule(
        f"!has(self.handOff) || !has(self.handOff.maxLag) || {_some_time('handOff.maxLag')}",
        "must be greater than zero; set it to the maximum lag of the live application behind Kafka,"
        " such as 5m",
        "handOff.maxLag",
    ),
    Rule(
        "!has(self.handOff) || !has(self.handOff.maxDistance) || !has(self.sources) ||"
        " self.sources.all(s,"
        " has(s.kafka) && has(s.kafka.partitionColumn) && has(s.kafka.offsetColumn) &&"
        " (!has(s.snapshot) || (!has(s.snapshot.id) && !has(s.snapshot.asOf))))",
        "requires kafka.partitionColumn and kafka.offsetColumn for every source, without"
        " snapshot.id and snapshot.asOf; set the columns and remove id and asOf, or remove"
        " maxDistance",
        "handOff.maxDistance",
    ),
    Rule(
        "!has(self.handOff) || !has(self.sources) || self.sources.all(s, !has(s.filter) &&"
        " !has(s.regions))",
        "filter and regions exclude rows from history that live traffic contains; remove them, and"
        " filter in the application",
        "sources",
    ),
    Rule(
        "!has(self.handOff) || !has(self.outputs) || self.outputs.all(o,"
        " o.?publish.?mode.orValue('None') != 'Replace'"
        " && !has(o.validate))",
        "publish mode Replace and validate require a window that ends, but with handOff live"
        " traffic continues; use another mode, and remove validate",
        "outputs",
    ),
    Rule(
        "!has(self.handOff) || !has(self.outputs) || self.outputs.all(o,"
        " o.?publish.?mode.orValue('None') != 'Deliver')",
        "publish mode Deliver is not possible with handOff: the live application delivers by"
        " itself; deliver in a separate Backfill without handOff",
        "outputs",
    ),
    Rule(
        "!has(self.handOff) || !has(self.publish) || !(self.publish in ['Replace', 'Deliver'])",
        "is not possible with handOff: Replace requires a window that ends, and the live"
        " application delivers by itself; use None, Append or Upsert",
        "publish",
    ),
    Rule(
        "!has(self.handOff) || self.handOff.start != 'Deploy' || !has(self.handOff.name)"
        " || self.handOff.name != self.applicationRef.name",
        "is the SparkApplication of applicationRef; choose another name for the live application",
        "handOff.name",
    ),
)


def _unchanged(expression: str, field: str) -> Rule:
    return Rule(
        f"!has(oldSelf.status) || !has(oldSelf.status.planId) || ({expression})",
        "cannot change once the plan is made; create another Backfill instead",
        f"spec.{field}",
    )


def _immutable_fields() -> Iterator[Rule]:
    """A rule for each field that cannot change. New fields are immutable unless they are listed as
    mutable.
    """
    for name in _aliases(BackfillSpec):
        if name in ADJUSTABLE_FIELDS:
            yield _unchanged(f"has(self.spec.{name}) == has(oldSelf.spec.{name})", name)
        elif name == "window":
            yield _unchanged(_same_window(), name)
        elif name not in MUTABLE_FIELDS and name != "outputs":
            yield _unchanged(_same(f"spec.{name}"), name)
    fixed = (
        name for name in _aliases(Output) if name != "publish" and name not in MUTABLE_IN_OUTPUTS
    )
    unchanged = [_same_in_items(f"has(o.{name})", f"o.{name}") for name in fixed]
    fields = zip(_aliases(Publish), Publish.model_fields.values(), strict=True)
    for name, field in fields:
        if f"publish.{name}" not in MUTABLE_IN_OUTPUTS:
            there = f"has(o.publish) && has(o.publish.{name})"
            unchanged.append(
                _same_in_items("true", f"{there} ? o.publish.{name} : '{field.default}'")
            )
    there = "has(self.spec.outputs) == has(oldSelf.spec.outputs) && (!has(self.spec.outputs)"
    yield _unchanged(f"{there} || {' && '.join(unchanged)})", "outputs")


def _approval_stays() -> Rule:
    """An editor of a Backfill may require approval, but not waive it."""

    def needs(spec: str) -> str:
        of_all = f"(has({spec}.publish) ? {spec}.publish : 'None')"
        own = "has(o.publish) && has(o.publish.mode) && o.publish.mode != 'None'"
        mode = f"({own} ? o.publish.mode : {of_all})"
        return (
            "(has(o.publish) && has(o.publish.approval)) ? o.publish.approval == 'Manual' :"
            f" {mode} == 'Deliver' || ({mode} in ['Replace', 'Upsert'] &&"
            " (!has(o.validate) || has(o.validate.reference)))"
        )

    without = f"self.spec.outputs.filter(o, !({needs('self.spec')})).map(o, o.name)"
    asked = f"oldSelf.spec.outputs.filter(o, {needs('oldSelf.spec')}).map(o, o.name)"
    return Rule(
        "!has(oldSelf.status) || !has(oldSelf.status.planId) || !has(self.spec.outputs) ||"
        f" !has(oldSelf.spec.outputs) || !{without}.exists(n, n in {asked})",
        "the result of an output needs approval, which cannot be waived once the plan is made;"
        " approve it, or set publish.approval: Manual in the same change",
        "spec.outputs",
    )


def _same_in_items(there: str, value: str) -> str:
    """CEL: whether old and new outputs, in order, have the same value of an optional field."""
    there_in_all = f"self.spec.outputs.map(o, {there}) == oldSelf.spec.outputs.map(o, {there})"
    chosen = f".filter(o, {there}).map(o, {value})"
    same = f"self.spec.outputs{chosen} == oldSelf.spec.outputs{chosen}"
    return same if there == "true" else f"{there_in_all} && {same}"


def _same(field: str) -> str:
    """CEL: whether a field is unchanged. Optional selection (``?.``) would be shorter, but its
    estimated cost has no bound.
    """
    return (
        f"has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} =="
        f" oldSelf.{field})"
    )


def _same_window() -> str:
    """CEL: whether the window is unchanged: a moment may be written in several ways."""
    new, old = "self.spec.window", "oldSelf.spec.window"
    times = f"{_moment(f'{new}.start')} == {_moment(f'{old}.start')}"
    ends = f"{_moment(f'{new}.end')} == {_moment(f'{old}.end')}"
    ends = f"('{LIVE}' in [{new}.end, {old}.end] ? {new}.end == {old}.end : {ends})"
    lengths = (f"{new}.{name} == {old}.{name}" for name in ("warmUp", "drain"))
    return " && ".join((times, ends, *lengths))


def _aliases(model: type[Model]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


RULES: Final[dict[type[Model], tuple[Rule, ...]]] = {
    Window: (
        Rule(
            f"self.end == '{LIVE}' || {_moment('self.start')} < {_moment('self.end')}",
            "must be after start; end is exclusive",
            "end",
        ),
    ),
    SnapshotRef: (
        Rule("!(has(self.id) && has(self.asOf))", "both id and asOf are set; remove one of them"),
    ),
    KafkaColumns: (
        Rule(
            "!self.?keyless.orValue(false) || !has(self.keyColumn)",
            "keyless is true, but keyColumn is set; remove one of them",
        ),
        Rule(
            "!self.?headerless.orValue(false) || !has(self.headersColumn)",
            "headerless is true, but headersColumn is set; remove one of them",
        ),
        Rule(
            "!self.?dropDuplicates.orValue(false) || (has(self.partitionColumn) &&"
            " has(self.offsetColumn))",
            "dropDuplicates requires the Kafka partition and offset of each row; set"
            " partitionColumn and offsetColumn",
        ),
    ),
    KafkaValue: (
        Rule(
            "(self.?format.orValue('json') == 'column') == has(self.column)",
            "column is required with format: column, and not allowed with any other format",
        ),
        Rule(
            "(self.?format.orValue('json') == 'avro') == has(self.schema)",
            "schema is required with format: avro, and not allowed with any other format",
        ),
        Rule(
            "(self.?framing.orValue('Plain') == 'Confluent') == has(self.schemaId)",
            "schemaId is required with framing: Confluent, and not allowed with any other framing",
        ),
        Rule(
            "self.?framing.orValue('Plain') == 'Plain' || self.?format.orValue('json') != 'column'",
            "format: column keeps the bytes unchanged, including any framing; remove framing",
        ),
        Rule(
            "self.?format.orValue('json') == 'json' || !(has(self.envelope) ||"
            " has(self.timestampFormat) || has(self.timestampUnit) || has(self.timeZone) ||"
            " (has(self.fields) && size(self.fields) > 0) ||"
            " (has(self.absent) && size(self.absent) > 0))",
            "fields, absent, envelope, timestampFormat, timestampUnit, timeZone require format:"
            " json",
        ),
    ),
    Output: (
        *(
            Rule(
                f"has(self.timestampColumn) || self.?publish.?mode.orValue('None') != '{mode}'",
                f"is missing; publish mode {mode} requires it to determine which rows to replace",
                "timestampColumn",
            )
            for mode in PublishMode
            if mode.takes_rows_away
        ),
        Rule(
            "!has(self.keys) || self.keys.all(k, self.keys.exists_one(j, j == k))",
            "a column is listed more than once; list it once",
            "keys",
        ),
        Rule(
            "(has(self.keys) && size(self.keys) > 0)"
            " || self.?publish.?mode.orValue('None') != 'Upsert'",
            "is missing; publish mode Upsert requires it to determine which row replaces which",
            "keys",
        ),
        Rule(
            "!has(self.validate) || !has(self.validate.tolerance)"
            " || size(self.validate.tolerance) == 0"
            " || (has(self.validate.keys) && size(self.validate.keys) > 0)"
            " || (has(self.keys) && size(self.keys) > 0)",
            "requires keys: without them, it is unknown which rows to compare with each other; list"
            " the columns that identify a row in keys or in validate.keys",
            "validate.tolerance",
        ),
        Rule(
            "!has(self.validate) || !has(self.keys)"
            " || (has(self.validate.keys) && size(self.validate.keys) > 0)"
            " || self.keys.all(k, !(has(self.validate.ignore) && k in self.validate.ignore)"
            " && !(has(self.validate.tolerance) && k in self.validate.tolerance))",
            "a column is a key, so it cannot be ignored or have a tolerance; remove it from keys,"
            " or from ignore and tolerance",
            "keys",
        ),
        Rule(
            "has(self.timestampColumn) || !has(self.timestampUnit)",
            "is set without timestampColumn; set timestampColumn, or remove timestampUnit",
        ),
        Rule(
            "has(self.timestampColumn) || !has(self.validate)",
            "is missing; validate requires it to determine which rows to compare",
            "timestampColumn",
        ),
        Rule(
            "!has(self.validate) || !has(self.validate.reference)"
            " || self.validate.reference.table != self.table",
            "is the table of the output itself; remove reference, and set against: Production",
            "validate.reference.table",
        ),
        Rule(
            "!has(self.validate) || has(self.validate.reference)"
            " || self.?publish.?mode.orValue('None') != 'Deliver'",
            "validate requires against: Reference with publish mode Deliver, whose table has no"
            " rows of production",
        ),
    ),
    Delivery: (
        Rule(
            f"!has(self.batchInterval) || {_some_time('batchInterval')}",
            "must be greater than zero",
            "batchInterval",
        ),
    ),
    Publish: (
        Rule(
            "(self.?mode.orValue('None') == 'Export') == has(self.location)",
            "location is required with mode: Export, and not allowed with any other mode",
        ),
        Rule(
            "!has(self.deliver) || self.?mode.orValue('None') == 'Deliver'",
            "deliver is not allowed with any mode other than Deliver",
        ),
    ),
    Validate: (
        Rule(
            "(self.?against.orValue('Production') == 'Reference') == has(self.reference)",
            "reference is required with against: Reference, and not allowed with against:"
            " Production",
        ),
        Rule(
            "!has(self.keys) || self.keys.all(k, !(has(self.ignore) && k in self.ignore)"
            " && !(has(self.tolerance) && k in self.tolerance))",
            "a column is a key, so it cannot be ignored or have a tolerance; remove it from keys,"
            " or from ignore and tolerance",
            "keys",
        ),
    ),
    Scaling: (
        Rule(
            "self.minExecutors <= self.maxExecutors",
            "must not be greater than maxExecutors",
            "minExecutors",
        ),
    ),
    PodResources: (
        Rule(
            "quantity(self.memory).compareTo(quantity('128Mi')) >= 0",
            "is too little for a job to start; set at least 128Mi",
            "memory",
        ),
    ),
    BackfillSpec: _SPEC,
    Backfill: (*_immutable_fields(), _approval_stays()),
    BackfillDecisionSpec: (
        Rule("self == oldSelf", "a decision cannot change; create another one"),
        Rule(
            "self.decision != 'Reject' || (has(self.reason) && size(self.reason) > 0)",
            "is missing; say why the result is rejected",
            "reason",
        ),
    ),
    BackfillDecision: (
        Rule(
            "self.spec.decision == 'Undo'"
            " ? self.metadata.name.startsWith('undo-' + self.spec.result + '-')"
            " : self.metadata.name == 'decision-' + self.spec.result",
            "must be named decision-RESULT or, for Undo, undo-RESULT-NUMBER",
        ),
    ),
    SplitAssignmentSpec: (
        Rule("self.attempt >= oldSelf.attempt", "must not decrease", "attempt"),
        Rule(
            "self.planId != oldSelf.planId || self.attempt != oldSelf.attempt || self.released >="
            " oldSelf.released",
            "must not decrease within an attempt",
            "released",
        ),
    ),
    SplitAssignmentStatus: (
        Rule(
            "self.attempt >= oldSelf.attempt",
            "a later attempt has already reported; this driver must stop",
            "attempt",
        ),
    ),
}
