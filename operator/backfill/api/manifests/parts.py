"""The parts of a spec that its rules check."""

from dataclasses import dataclass
from typing import Self

from backfill.api.hand_off import HandOff
from backfill.api.output import Output
from backfill.api.quantities import to_us
from backfill.api.source import Source
from backfill.api.spec import BackfillSpec, CatalogRef, Ordering, Window
from backfill.api.static_table import StaticTable


@dataclass(frozen=True)
class SpecParts:
    """The parts of a spec that the rules check. Parts that could not be read are None."""

    window: Window | None
    sources: tuple[Source | None, ...]
    static_tables: tuple[StaticTable | None, ...]
    ordering: Ordering | None
    max_misalignment_us: int | None
    outputs: tuple[Output | None, ...]
    ignored_queries: tuple[str, ...]
    execution: str | None
    has_rate: bool
    """Whether the spec has ``maxRowsPerSecond``."""
    catalogs: tuple[CatalogRef | None, ...]
    wait_for_input_us: int | None
    hand_off: HandOff | None
    hands_over: bool
    """Whether the spec has ``handOff``, readable or not."""
    by_time: bool
    """Whether it has ``startingTimestampMargin``, readable or not."""
    application: str | None
    publish: str | None
    """Whether the spec has ``publish``."""

    @classmethod
    def of(cls, spec: BackfillSpec) -> Self:
        """All parts of a spec."""
        return cls(
            window=spec.window,
            sources=spec.sources,
            static_tables=spec.static_tables,
            ordering=spec.ordering,
            max_misalignment_us=to_us(spec.max_misalignment),
            outputs=spec.outputs,
            ignored_queries=spec.ignored_queries,
            execution=spec.execution,
            has_rate=spec.max_rows_per_second is not None,
            catalogs=spec.catalogs,
            wait_for_input_us=to_us(spec.wait_for_input),
            hand_off=spec.hand_off,
            hands_over=spec.hand_off is not None,
            by_time=spec.hand_off is not None
            and spec.hand_off.starting_timestamp_margin is not None,
            application=spec.application_ref.name,
            publish=spec.publish,
        )
