"""Rules between the fields of a Backfill, which the schema of single fields cannot express."""

from collections import Counter
from collections.abc import Iterable, Iterator

from backfill.api.errors import Problem
from backfill.api.manifests.hand_off_rules import (
    hand_off_keeps_state,
    live_application_has_its_own_name,
    live_goes_with_hand_off,
)
from backfill.api.manifests.parts import SpecParts
from backfill.api.output import PublishMode
from backfill.api.quantities import format_duration, to_us
from backfill.api.spec import BackfillSpec, OrderingPolicy
from backfill.api.workspace_locations import is_below

MOST_STEPS = 1_000_000


def check_spec(spec: BackfillSpec) -> list[Problem]:
    """Every violation of these rules in a spec."""
    return check_parts(SpecParts.of(spec))


def check_parts(parts: SpecParts) -> list[Problem]:
    """The same for the parts of a spec that could be read."""
    return [problem for rule in _RULES for problem in rule(parts)]


def _unique_names(parts: SpecParts) -> Iterator[Problem]:
    sources = [
        (f"spec.sources[{n}].name", source.name) for n, source in enumerate(parts.sources) if source
    ]
    outputs = [
        (f"spec.outputs[{n}].name", output.name) for n, output in enumerate(parts.outputs) if output
    ]
    catalogs = [
        (f"spec.catalogs[{n}].name", catalog.name)
        for n, catalog in enumerate(parts.catalogs)
        if catalog
    ]
    yield from _repeated(sources, "the name of another source", "give every source its own name")
    yield from _repeated(outputs, "the name of another output", "give every output its own name")
    yield from _repeated(catalogs, "the name of another catalog", "list every catalog once")
    yield from _same_for_pyiceberg(catalogs)


def _same_for_pyiceberg(catalogs: list[tuple[str, str]]) -> Iterator[Problem]:
    """Otherwise the credentials of one catalog would be sent to the server of the other."""
    first: dict[str, str] = {}
    for field, name in catalogs:
        known = first.setdefault(name.lower().replace("_", "-"), name)
        if known != name:
            yield Problem(
                field,
                f'PyIceberg does not distinguish "{name}" from "{known}"',
                "rename one of them; names must differ in more than case, _ and -",
            )


def _unique_topics(parts: SpecParts) -> Iterator[Problem]:
    topics = [
        (f"spec.sources[{n}].live.kafka.topic", source.live.kafka.topic)
        for n, source in enumerate(parts.sources)
        if source and source.live.kafka.topic
    ]
    yield from _repeated(
        topics,
        "the topic of another source",
        "list every topic once; the application may still read it several times",
    )


def _unique_output_tables(parts: SpecParts) -> Iterator[Problem]:
    tables = [
        (f"spec.outputs[{n}].table", output.table)
        for n, output in enumerate(parts.outputs)
        if output
    ]
    yield from _repeated(
        tables,
        "the table of another output",
        "create one Backfill for each output, and list the other output's query in"
        " spec.ignoredQueries",
    )


def _exports_are_apart(parts: SpecParts) -> Iterator[Problem]:
    """An export has a directory of its own."""
    earlier: list[str] = []
    for n, output in enumerate(parts.outputs):
        location = output.publish.location if output else None
        if location is None:
            continue
        if any(is_below(location, other) or is_below(other, location) for other in earlier):
            yield Problem(
                f"spec.outputs[{n}].publish.location",
                f'"{location}" overlaps with the location of another output',
                "give every output its own directory",
            )
        earlier.append(location)


def _unique_static_tables(parts: SpecParts) -> Iterator[Problem]:
    tables = [
        (f"spec.staticTables[{n}].table", static.table)
        for n, static in enumerate(parts.static_tables)
        if static
    ]
    yield from _repeated(tables, "listed", "list it once, with one asOf")


def _ignored_queries_are_no_outputs(parts: SpecParts) -> Iterator[Problem]:
    outputs = {output.name for output in parts.outputs if output}
    for n, query in enumerate(parts.ignored_queries):
        if query in outputs:
            fix = "remove it here to run the query, or remove the output"
            yield Problem(
                f"spec.ignoredQueries[{n}]", f'"{query}" is also the name of an output', fix
            )


def _outputs_are_no_sources(parts: SpecParts) -> Iterator[Problem]:
    """Such a source gives the application production's old results, unless the spec chooses a
    snapshot.
    """
    for n, output in enumerate(parts.outputs):
        for m, source in enumerate(parts.sources):
            if output and source and source.table == output.table and not source.snapshot.is_chosen:
                yield output_is_source(f"spec.outputs[{n}].table", output.table, m)


def output_is_source(field: str, table: str, source: int) -> Problem:
    """The problem of an output whose table is also that of a source without a chosen snapshot."""
    message = (
        f'"{table}" is also the table of spec.sources[{source}]: the application would read the old'
        " rows of its own output"
    )
    chosen = f"choose the rows to read with spec.sources[{source}].snapshot (id or asOf)"
    return Problem(field, message, f"write to another table, or {chosen}")


def _repeated(named: Iterable[tuple[str, str]], what: str, fix: str) -> Iterator[Problem]:
    named = list(named)
    counts = Counter(name for _, name in named)
    first: set[str] = set()
    for field, name in named:
        if counts[name] > 1 and name in first:
            yield Problem(field, f'"{name}" is already {what}', fix)
        first.add(name)


def _known_catalogs(parts: SpecParts) -> Iterator[Problem]:
    known = [catalog.name for catalog in parts.catalogs if catalog]
    if not known or len(known) < len(parts.catalogs):
        return
    tables = [
        (f"spec.sources[{n}].table", source.table)
        for n, source in enumerate(parts.sources)
        if source
    ]
    tables += [
        (f"spec.staticTables[{n}].table", static.table)
        for n, static in enumerate(parts.static_tables)
        if static
    ]
    tables += [
        (f"spec.outputs[{n}].table", output.table)
        for n, output in enumerate(parts.outputs)
        if output
    ]
    tables += [
        (f"spec.outputs[{n}].validate.reference.table", output.reference.table)
        for n, output in enumerate(parts.outputs)
        if output and output.reference
    ]
    for field, table in tables:
        catalog = table.split(".")[0]
        if catalog not in known:
            yield Problem(
                field,
                f'"{table}" is in a catalog that spec.catalogs does not list',
                f"add {catalog} to spec.catalogs",
            )


def _strict_order_has_offsets(parts: SpecParts) -> Iterator[Problem]:
    if parts.ordering is None or parts.ordering.policy is not OrderingPolicy.STRICT:
        return
    for n, source in enumerate(parts.sources):
        for column in ("partition", "offset"):
            if source and getattr(source.kafka, f"{column}_column") is None:
                yield Problem(
                    f"spec.sources[{n}].kafka.{column}Column",
                    "is missing; ordering policy Strict requires it",
                    f"set it to the column with the Kafka {column}, or choose another"
                    " ordering.policy",
                )


def _outputs_know_the_window(parts: SpecParts) -> Iterator[Problem]:
    """Without a timestamp, an output's rows cannot be limited to the window, nor the window be
    replaced in its table.
    """
    around = parts.window is not None and (parts.window.warm_up or parts.window.drain)
    for n, output in enumerate(parts.outputs):
        if output is None or output.timestamp_column is not None:
            continue
        field, fix = (
            f"spec.outputs[{n}].timestampColumn",
            "set it to the column that decides whether a row is in the window",
        )
        if output.publish.mode.takes_rows_away:
            yield Problem(
                field,
                f"is missing; publish mode {output.publish.mode} requires it to determine which"
                " rows to replace",
                fix,
            )
        elif around:
            yield Problem(
                field,
                "is missing; it is required to exclude the results of warmUp and drain",
                fix,
            )


def _units_have_columns(parts: SpecParts) -> Iterator[Problem]:
    for n, output in enumerate(parts.outputs):
        if output and output.timestamp_unit is not None and output.timestamp_column is None:
            yield Problem(
                f"spec.outputs[{n}].timestampUnit",
                "is set without timestampColumn",
                "set timestampColumn, or remove timestampUnit",
            )


def _publish_is_for_found_outputs(parts: SpecParts) -> Iterator[Problem]:
    if parts.publish and parts.sources:
        yield Problem(
            "spec.publish",
            "has no effect, because spec.sources lists what is read",
            "set publish.mode of each output, or remove sources, which are then found",
        )


def _publish_is_for_outputs_without_a_mode(parts: SpecParts) -> Iterator[Problem]:
    """Written out, the default would be replaced nevertheless."""
    if not parts.publish or parts.sources:
        return
    for n, output in enumerate(parts.outputs):
        own = output.publish if output else None
        if own and own.mode is PublishMode.NONE and "mode" in own.model_fields_set:
            yield Problem(
                f"spec.outputs[{n}].publish.mode",
                '"None" has no effect, because spec.publish is the mode of all outputs that have'
                " none",
                "remove spec.publish, and set publish.mode of each output that is to be published",
            )


def _keys_identify_rows(parts: SpecParts) -> Iterator[Problem]:
    for n, output in enumerate(parts.outputs):
        if output is None:
            continue
        field = f"spec.outputs[{n}].keys"
        for column, times in Counter(output.keys).items():
            if times > 1:
                yield Problem(
                    field, f'"{column}" is listed {times} times', "list every column once"
                )
        if output.publish.mode is PublishMode.UPSERT and not output.keys:
            yield Problem(
                field,
                "is missing; publish mode Upsert requires it to determine which row replaces which",
                "set it to the columns that identify a row of the table",
            )


def _comparisons_fit_together(parts: SpecParts) -> Iterator[Problem]:
    """What can be seen of ``validate`` without the table."""
    for n, output in enumerate(parts.outputs):
        if output is None or output.validate_ is None:
            continue
        field, wanted = f"spec.outputs[{n}]", output.validate_
        if output.timestamp_column is None:
            yield Problem(
                f"{field}.timestampColumn",
                "is missing; validate requires it to determine which rows to compare",
                "set it to the column that decides whether a row is in the window",
            )
        if wanted.reference is not None and wanted.reference.table == output.table:
            yield reference_is_output(f"{field}.validate.reference.table", output.table)
        keys = f"{field}.validate.keys" if wanted.keys else f"{field}.keys"
        if wanted.tolerance and not output.compared_keys:
            yield Problem(
                f"{field}.validate.tolerance",
                "requires keys: without them, it is unknown which rows to compare with each other",
                f"list the columns that identify a row in {field}.keys or in validate.keys",
            )
        for column in sorted({*output.compared_keys} & {*wanted.ignore, *wanted.tolerance}):
            yield Problem(
                keys,
                f"{column} is a key, so it cannot be ignored or have a tolerance",
                "remove it from keys, or from ignore and tolerance",
            )


def reference_is_output(field: str, table: str) -> Problem:
    """The problem of a reference that is the table of its output."""
    return Problem(
        field,
        f'"{table}" is the table of the output itself',
        "remove reference, and set against: Production",
    )


def _execution_in_order(parts: SpecParts) -> Iterator[Problem]:
    strict = parts.ordering is not None and parts.ordering.policy is OrderingPolicy.STRICT
    if parts.execution == "Batch" and strict:
        yield Problem(
            "spec.execution",
            '"Batch" does not keep the order of rows, which ordering.policy Strict requires',
            "use Auto or Streaming, or choose another policy",
        )
    if parts.execution == "Batch" and parts.has_rate:
        yield Problem(
            "spec.execution",
            '"Batch" cannot limit its rate, as maxRowsPerSecond requires, and may read rows more'
            " than once",
            "use Auto or Streaming",
        )


def _chosen_snapshots_do_not_change(parts: SpecParts) -> Iterator[Problem]:
    if not parts.wait_for_input_us:
        return
    for n, source in enumerate(parts.sources):
        if source and source.snapshot.is_chosen:
            key = "id" if source.snapshot.id is not None else "asOf"
            yield Problem(
                "spec.waitForInput",
                f"cannot be combined with spec.sources[{n}].snapshot.{key}: a fixed snapshot never"
                " gets more rows",
                f"remove waitForInput or snapshot.{key}",
            )


def _not_too_many_steps(parts: SpecParts) -> Iterator[Problem]:
    """A step spans at most half of the allowed misalignment."""
    if parts.window is None or parts.window.live or not parts.max_misalignment_us:
        return  # of a window without an end, planning finds out
    read_us = to_us(
        parts.window.end - parts.window.start + parts.window.warm_up + parts.window.drain
    )
    steps = 2 * read_us // parts.max_misalignment_us
    if steps > MOST_STEPS:
        length = format_duration(parts.window.end - parts.window.start)
        yield Problem(
            "spec.maxMisalignment",
            f"would divide a window of {length} into up to {steps:,} steps; the maximum is"
            f" {MOST_STEPS:,}",
            "increase maxMisalignment, or split the window",
        )


_RULES = (
    _unique_names,
    _unique_topics,
    _unique_output_tables,
    _exports_are_apart,
    _outputs_are_no_sources,
    _unique_static_tables,
    _ignored_queries_are_no_outputs,
    _known_catalogs,
    _strict_order_has_offsets,
    _outputs_know_the_window,
    _units_have_columns,
    _publish_is_for_found_outputs,
    _publish_is_for_outputs_without_a_mode,
    _keys_identify_rows,
    _comparisons_fit_together,
    _execution_in_order,
    _chosen_snapshots_do_not_change,
    _not_too_many_steps,
    live_goes_with_hand_off,
    hand_off_keeps_state,
    live_application_has_its_own_name,
)
