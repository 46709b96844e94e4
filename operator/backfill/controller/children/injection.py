"""What the pods of a backfill have in addition to production's: settings, launcher, catalogs."""

from collections.abc import Mapping
from typing import Final

from backfill.api.backfill import Backfill
from backfill.api.catalog_properties import CATALOGS_DIRECTORY, CATALOGS_VARIABLE
from backfill.controller.children.launcher import LAUNCHER, LAUNCHER_KEY, LAUNCHER_PATH
from backfill.controller.children.manifest_merge import items, part
from backfill.controller.children.program import Program
from backfill.controller.driver import Launch, driver_settings
from backfill.iceberg.spark_catalogs import catalogs_variable
from backfill.kube.object_names import GROUP
from backfill.kube.resources import Manifest
from backfill.protocol.driver_settings import CLUSTER_CHANNEL, SETTINGS_VARIABLE, DriverSettings
from backfill.protocol.hand_off_messages import LIVE_SETTINGS_VARIABLE, LiveSettings

LAUNCHER_VOLUME: Final = "backfill-launcher"
LAUNCHER_ANNOTATION: Final = f"{GROUP}/launcher"
"""Annotation of a live application's driver pod that holds the launcher."""


def inject_driver(
    template: Manifest, container: Manifest, settings: DriverSettings, launcher: str
) -> None:
    """Makes the pod of a template the driver of a backfill. ``launcher`` is the name of the
    launcher's ConfigMap.
    """
    _mount(
        template,
        container,
        {"name": LAUNCHER_VOLUME, "configMap": {"name": launcher}},
        LAUNCHER_PATH,
        LAUNCHER_KEY,
    )
    set_variable(container, SETTINGS_VARIABLE, settings_json(settings))
    set_variable(container, "PYTHONUNBUFFERED", "1")


def pod_settings(
    launch: Launch,
    program: Program,
    spark_conf: Mapping[str, str],
    production_conf: Mapping[str, str],
) -> DriverSettings:
    """The settings of an attempt whose driver is a pod, for any Spark operator."""
    return driver_settings(
        launch,
        channel=f"{CLUSTER_CHANNEL}{launch.backfill.metadata.name}",
        main_file=program.main_file,
        arguments=program.arguments,
        spark_conf=spark_conf,
        production_conf=production_conf,
    )


def inject_live(template: Manifest, container: Manifest, settings: LiveSettings) -> None:
    """Makes the pod of a template the driver of a live application.

    The launcher is in an annotation of the pod, so that the application is one object that depends
    on no other.
    """
    annotations = part(template, "metadata", "annotations")
    annotations[LAUNCHER_ANNOTATION] = LAUNCHER
    item = {
        "path": LAUNCHER_KEY,
        "fieldRef": {"fieldPath": f"metadata.annotations['{LAUNCHER_ANNOTATION}']"},
    }
    volume = {"name": LAUNCHER_VOLUME, "downwardAPI": {"items": [item]}}
    _mount(template, container, volume, LAUNCHER_PATH, LAUNCHER_KEY)
    set_variable(container, LIVE_SETTINGS_VARIABLE, settings_json(settings))
    set_variable(container, "PYTHONUNBUFFERED", "1")


def inject_catalogs(
    template: Manifest, container: Manifest, backfill: Backfill, production: Manifest
) -> None:
    """Mounts the catalogs' Secrets, and passes what production's Spark properties say of the other
    catalogs.

    Executors need them as well as the driver, since tasks open catalogs too.
    """
    mounted = [
        (catalog.name, catalog.secret_ref.name)
        for catalog in backfill.spec.catalogs
        if catalog.secret_ref
    ]
    for number, (catalog, secret) in enumerate(mounted):
        volume = {"name": f"backfill-catalog-{number}", "secret": {"secretName": secret}}
        _mount(template, container, volume, f"{CATALOGS_DIRECTORY}/{catalog}")
    if mounted:
        set_variable(container, CATALOGS_VARIABLE, CATALOGS_DIRECTORY)
    spec: Manifest = production["spec"]
    hadoop = {f"spark.hadoop.{key}": each for key, each in (spec.get("hadoopConf") or {}).items()}
    conf = (spec.get("sparkConf") or {}) | hadoop | backfill.spec.overrides.spark_conf
    for name, value in catalogs_variable(conf, others=[name for name, _ in mounted]).items():
        set_variable(container, name, _literal(value))


def settings_json(settings: DriverSettings | LiveSettings) -> str:
    """The settings as the value of an environment variable."""
    return _literal(settings.model_dump_json(by_alias=True, exclude_none=True))


def _literal(document: str) -> str:
    """JSON without ``$``: the kubelet would replace ``$(NAME)``."""
    return document.replace("$", "\\u0024")


def set_variable(container: Manifest, name: str, value: str) -> None:
    """Sets an environment variable, and replaces production's value."""
    others = [variable for variable in items(container, "env") if variable["name"] != name]
    container["env"] = [*others, {"name": name, "value": value}]


def _mount(
    template: Manifest, container: Manifest, volume: Manifest, path: str, key: str = ""
) -> None:
    items(part(template, "spec"), "volumes").append(volume)
    mount = {"name": volume["name"], "mountPath": path} | (
        {} if "emptyDir" in volume else {"readOnly": True}
    )
    items(container, "volumeMounts").append(mount | ({"subPath": key} if key else {}))
