"""A real Kafka broker, alone in its cluster."""

import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import missing
from installed_spark import INSTALLED
from local_ports import free_port, listens
from repository import ROOT
from small_java import QUICK
from waiting import eventually

_SCRIPT = ROOT / "scripts" / "kafka.sh"


@dataclass(frozen=True, slots=True)
class Jars:
    """Where the jars of the broker and those of Spark are."""

    broker: Path
    spark: Path

    @property
    def for_spark(self) -> str:
        """Spark's Kafka source and sink, as Spark takes jars."""
        names = ("spark-*kafka*", "kafka-clients*", "commons-pool2*")
        return ",".join(sorted(str(jar) for name in names for jar in self.spark.glob(name)))


def find_jars() -> Jars:
    """Gets what is missing, or skips the test where that is not possible; with CI set it fails."""
    found = subprocess.run(["sh", _SCRIPT, INSTALLED], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        missing.skip(found.stderr.strip()[-1000:])
    return Jars(*(Path(line) for line in found.stdout.splitlines()))


@contextmanager
def kafka_broker(jars: Jars, directory: Path, *, creates_topics: bool = False) -> Iterator[str]:
    """A broker without topics; its address."""
    client, controller = free_port(), free_port()
    settings = broker_settings(
        listeners=f"PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}",
        advertised=f"127.0.0.1:{client}",
        controller=f"127.0.0.1:{controller}",
        log=str(directory / "log"),
    )
    if creates_topics:
        settings = settings.replace("topics.enable=false", "topics.enable=true")
    properties = directory / "server.properties"
    properties.write_text(settings)
    java = ["java", *QUICK.split(), "-Xmx512m", "-cp", f"{jars.broker}/*"]
    log = directory / "broker.log"
    with log.open("wb") as output:
        format_log = ["kafka.tools.StorageTool", "format", "-t", cluster_id(), "-c", properties]
        subprocess.run([*java, *format_log], check=True, stdout=output, stderr=output)
        server = subprocess.Popen([*java, "kafka.Kafka", properties], stdout=output, stderr=output)
    try:
        eventually(lambda: listens(client), log.read_text)
        yield f"127.0.0.1:{client}"
    finally:
        server.kill()
        server.wait()


def broker_settings(*, listeners: str, advertised: str, controller: str, log: str) -> str:
    """The properties file of a broker that is alone in its cluster. ``advertised`` is the address
    that clients are given.
    """
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{controller}",
        "listeners": listeners,
        "advertised.listeners": f"PLAINTEXT://{advertised}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": log,
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "auto.create.topics.enable": "false",
        # records of a test are years old
        "log.retention.ms": "-1",
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def cluster_id() -> str:
    """The ID of a new cluster."""
    return str(uuid.uuid4()).replace("-", "")[:22]
