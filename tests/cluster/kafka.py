"""A Kafka broker as a pod, and a client of it on this machine. Both run with the jars of a broker."""

import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pyspark
from images import SPARK
from live_cluster import Cluster, listens_at, until
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from rest import Manifest

from backfill.api.quantities import to_us
from kafka_broker import broker_settings, cluster_id, find_jars
from small_java import JAVA_OPTIONS

_NAME, _PORT = "broker", 9092
_POLL_SECONDS = 1


class Broker:
    """A broker in a namespace of its own. Pods and this machine reach it by the node's address."""

    def __init__(self, cluster: Cluster, namespace: str, directory: Path):
        """``directory`` is one that pods see at the same path; the jars are copied there, and the
        broker runs with the Java of Spark's image.
        """
        self._cluster = cluster
        self.namespace = namespace
        self._jars = directory / "kafka"

    def make(self) -> None:
        """Makes the namespace and begins to start the broker."""
        shutil.copytree(find_jars().broker, self._jars)
        self._cluster.admin.create(
            "api/v1/namespaces", {"metadata": {"name": self.namespace}}
        ).expect()
        # its port on the node is what it tells its clients
        for made in (_service(), None):
            manifest = made or self._pod()
            self._cluster.kubectl(self.namespace, "apply", "-f", "-", manifests=[manifest])

    @property
    def address(self) -> str:
        """Where clients find it."""
        return self._cluster.outside(self.namespace, _NAME)

    @contextmanager
    def client(self) -> Iterator["Client"]:
        """A client, when the broker is up."""
        until(lambda: listens_at(self.address), "the broker answers")
        jar, *_ = Path(pyspark.__file__).parent.glob("jars/py4j-*.jar")
        port = launch_gateway(
            jarpath=str(jar),
            classpath=f"{find_jars().broker}/*",
            javaopts=JAVA_OPTIONS.split(),
            die_on_exit=True,
        )
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
        try:
            yield Client(gateway.jvm, self.address)
        finally:
            gateway.shutdown()

    def story(self) -> str:
        """What happened, for a test that failed."""
        told = (("get", "pods", "--output", "wide"), ("logs", _NAME, "--tail", "20"))
        return "\n".join(self._cluster.tell(self.namespace, *words) for words in told)

    def remove(self) -> None:
        """Deletes the namespace."""
        self._cluster.admin.delete(f"api/v1/namespaces/{self.namespace}")

    def _pod(self) -> Manifest:
        controller = f"localhost:{_PORT + 1}"
        settings = broker_settings(
            listeners=f"PLAINTEXT://:{_PORT},CONTROLLER://{controller}",
            advertised=self.address,
            controller=controller,
            log="/data/log",
        )
        java = f"java {JAVA_OPTIONS} -Xmx256m -cp '{self._jars}/*'"
        begin = (
            'printf %s "$SETTINGS" >/data/server.properties'
            f" && {java} kafka.tools.StorageTool format -t {cluster_id()} -c /data/server.properties"
            f" && exec {java} kafka.Kafka /data/server.properties"
        )
        container = {
            "name": "server",
            "image": SPARK,
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", begin],
            "env": [{"name": "SETTINGS", "value": settings}],
            "readinessProbe": {"tcpSocket": {"port": _PORT}, "periodSeconds": 1},
            "resources": {"requests": {"cpu": "50m", "memory": "512Mi"}},
            "volumeMounts": [
                {"name": "data", "mountPath": "/data"},
                {"name": "jars", "mountPath": str(self._jars), "readOnly": True},
            ],
        }
        volumes = [
            {"name": "data", "emptyDir": {}},
            {"name": "jars", "hostPath": {"path": str(self._jars)}},
        ]
        spec = {"containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 1}
        metadata = {"name": _NAME, "labels": {"server": _NAME}}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


class Client:
    """Kafka's own client. May be used by many threads."""

    def __init__(self, jvm: Any, address: str):
        self._jvm = jvm
        text = "org.apache.kafka.common.serialization.String"
        self._properties = {
            "bootstrap.servers": address,
            "key.serializer": f"{text}Serializer",
            "value.serializer": f"{text}Serializer",
            "key.deserializer": f"{text}Deserializer",
            "value.deserializer": f"{text}Deserializer",
            # If a broker is not ready for the first record of a new topic and takes one that is
            # sent meanwhile, it refuses the first one for good (KAFKA-15591).
            "max.in.flight.requests.per.connection": "1",
        }
        self._producer = jvm.org.apache.kafka.clients.producer.KafkaProducer(self._properties)

    def create(self, topics: Mapping[str, int]) -> None:
        """Makes topics with numbers of partitions."""
        one = self._jvm.java.util.Optional
        package = self._jvm.org.apache.kafka.clients.admin
        wanted = [
            package.NewTopic(topic, one.of(partitions), one.empty())
            for topic, partitions in topics.items()
        ]
        admin = package.AdminClient.create(self._properties)
        admin.createTopics(wanted).all().get()
        admin.close()

    def send(self, topic: str, records: Iterable[tuple[int, datetime, str, str]]) -> None:
        """Sends records of a time to their partitions, in this order, with key and value. Returns
        when Kafka has them, and fails if it does not take one.
        """
        record = self._jvm.org.apache.kafka.clients.producer.ProducerRecord
        taken = [
            self._producer.send(record(topic, partition, to_us(at) // 1_000, key, value))
            for partition, at, key, value in records
        ]
        self._producer.flush()
        for each in taken:
            each.get()

    def values(self, topic: str, partition: int = 0) -> list[str]:
        """All records of a partition, in the order of their offsets, which begin with 0."""
        place = [self._jvm.org.apache.kafka.common.TopicPartition(topic, partition)]
        consumer = self._jvm.org.apache.kafka.clients.consumer.KafkaConsumer(self._properties)
        consumer.assign(place)
        end = int(next(iter(consumer.endOffsets(place).values())))
        consumer.seekToBeginning(place)
        wait = self._jvm.java.time.Duration.ofSeconds(_POLL_SECONDS)
        found: list[str] = []
        while len(found) < end:
            found += [str(record.value()) for record in consumer.poll(wait).records(place[0])]
        consumer.close()
        return found


def _service() -> Manifest:
    spec = {"type": "NodePort", "selector": {"server": _NAME}, "ports": [{"port": _PORT}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": _NAME}, "spec": spec}
