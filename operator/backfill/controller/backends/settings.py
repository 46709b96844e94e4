"""What a driver is told when it starts, apart from where it runs."""

from collections.abc import Mapping
from types import MappingProxyType

from backfill.api.settings import DriverSettings
from backfill.controller.backends.base import Launch


def driver_settings(
    launch: Launch,
    *,
    channel: str,
    scratch: str,
    main_file: str,
    arguments: tuple[str, ...],
    spark_conf: Mapping[str, str],
    spark_defaults: Mapping[str, str] = MappingProxyType({}),
) -> DriverSettings:
    """The settings of one attempt; the arguments are what its backend decides."""
    backfill = launch.backfill
    return DriverSettings(
        backfill=backfill.metadata.name,
        namespace=backfill.metadata.namespace,
        uid=backfill.metadata.uid,
        attempt=launch.attempt,
        plan_id=launch.plan_id,
        plan=launch.plan.uri,
        checkpoints=launch.checkpoints.uri,
        workspace_catalog=launch.plan.catalog,
        channel=channel,
        scratch=scratch,
        window=backfill.spec.window,
        sources=backfill.spec.sources,
        outputs=backfill.spec.outputs,
        ignored_queries=backfill.spec.ignored_queries,
        main_file=main_file,
        arguments=arguments,
        spark_conf=dict(spark_conf),
        spark_defaults=dict(spark_defaults),
    )
