"""Runs a command with ``KUBECONFIG`` of a cluster that tests may use, with nodes, the Spark
operator and all images.

That is the cluster of ``KUBECONFIG`` where it is clearly one to be thrown away; it is taken as it
is. Else one is made with kind, and deleted when the command has ended. Its exit status is the
command's. What can be chosen is in tests/README.md.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT / "tests" / "apiserver"), str(ROOT / "tests" / "cluster")]

from images import JOBS, OPERATOR, SPARK, STORES  # noqa: E402
from kubeconfigs import why_refused  # noqa: E402

SPARK_OPERATOR_VERSION = "2.5.2"
NODE_IMAGE = (
    "kindest/node:v1.34.0@sha256:7416a61b42b1662ca6ca89f02028ac133a309a2a30ba309614e8ec94d976dc5a"
)
DIRECTORY = os.environ.get("BACKFILL_E2E_DIRECTORY") or str(
    Path(tempfile.gettempdir()) / "backfill-e2e"
)


def main() -> int:
    """The exit status."""
    command, given = sys.argv[1:], os.environ.get("KUBECONFIG")
    why_not = why_refused(Path(given)) if given else "KUBECONFIG names no cluster"
    try:
        if why_not:
            print(f"{why_not}: making one with kind", flush=True)
            return with_kind(command)
        return subprocess.run(command, check=False).returncode
    except UnusableError as error:
        print(error, file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as error:
        print(f"failed: {' '.join(error.cmd)}", file=sys.stderr)
        return 1


class UnusableError(Exception):
    """What is missing, and what to do about it."""


def with_kind(command: list[str]) -> int:
    """Runs the command on a kind cluster of its own."""
    engine, helm = container_engine(), printed("helm.sh")
    chart = spark_operator_chart(helm)
    with kind_cluster(engine) as (name, kubeconfig):
        load_images(engine, name)
        os.environ["KUBECONFIG"] = str(kubeconfig)
        os.environ["RESTART_API_SERVER"] = (
            f"{engine} exec {name}-control-plane pkill -KILL kube-apiserver"
        )
        # An empty name stands for all namespaces: tests make theirs as they go.
        values = ["--set-json", 'spark.jobNamespaces=[""]', "--wait", "--timeout", "5m"]
        run(
            helm,
            "install",
            "spark-operator",
            *chart,
            "--namespace",
            "spark-operator",
            "--create-namespace",
            *values,
        )
        return subprocess.run(command, check=False).returncode


def container_engine() -> str:
    """What kind runs its nodes with, and what images are built with."""
    missing = [program for program in ("kind", "kubectl") if not shutil.which(program)]
    engines = [
        engine
        for engine in ("docker", "podman")
        if shutil.which(engine) and succeeds(engine, "info")
    ]
    if missing or not engines:
        named = [*missing, *([] if engines else ["docker or podman that runs"])]
        raise UnusableError(
            f"There is no {', no '.join(named)} here: install it, or name a cluster of kind, k3d or"
            " this machine with KUBECONFIG"
        )
    if engines[0] == "podman":
        os.environ["KIND_EXPERIMENTAL_PROVIDER"] = "podman"
    return engines[0]


def spark_operator_chart(helm: str) -> list[str]:
    """The arguments by which helm finds Kubeflow's chart."""
    chart = [
        os.environ.get("SPARK_OPERATOR_CHART") or "spark-operator/spark-operator",
        "--version",
        SPARK_OPERATOR_VERSION,
    ]
    if not succeeds(helm, "show", "chart", *chart):
        raise UnusableError(
            f"helm finds no chart {chart[0]} of version {SPARK_OPERATOR_VERSION}: add Kubeflow's"
            " repository by `helm repo add spark-operator URL`, or name the chart, its directory"
            " or its archive with SPARK_OPERATOR_CHART"
        )
    return chart


@contextmanager
def kind_cluster(engine: str) -> Iterator[tuple[str, Path]]:
    """A cluster that nobody else has: its name, and a kubeconfig of its own."""
    name, place = f"backfill-e2e-{os.getpid()}", Path(tempfile.mkdtemp(prefix="kind-"))
    kubeconfig, config = place / "kubeconfig", place / "kind.yaml"
    Path(DIRECTORY).mkdir(parents=True, exist_ok=True)
    node = {
        "role": "control-plane",
        "extraMounts": [{"hostPath": DIRECTORY, "containerPath": DIRECTORY}],
    }
    config.write_text(
        json.dumps({"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4", "nodes": [node]})
    )
    image = os.environ.get("KIND_NODE_IMAGE") or NODE_IMAGE
    try:
        run(
            "kind",
            "create",
            "cluster",
            "--name",
            name,
            "--config",
            config,
            "--kubeconfig",
            kubeconfig,
            "--image",
            image,
        )
        yield name, kubeconfig
    finally:
        if os.environ.get("KEEP_CLUSTER"):
            print(
                f"The cluster is kept. Use it: export KUBECONFIG={kubeconfig}; delete it: kind"
                f" delete cluster --name {name}"
            )
        else:
            subprocess.run(
                ["kind", "delete", "cluster", "--name", name, "--kubeconfig", kubeconfig],
                check=False,
            )
            shutil.rmtree(place)


def load_images(engine: str, cluster: str) -> None:
    """Builds the images and gives them to the nodes: no registry is needed."""
    gateway = printed("object-store.sh", "--gateway")
    given = {"BASE_IMAGE": os.environ.get("BASE_IMAGE"), "SPARK_VERSION": os.environ.get("SPARK")}
    options = [f"--build-arg={name}={value}" for name, value in given.items() if value]
    own = ROOT / "operator" / "Dockerfile"
    for image, file, context, *target in (
        (OPERATOR, own, ROOT, "--target=operator"),
        (JOBS, own, ROOT, "--target=jobs"),
        (SPARK, ROOT / "spark-images" / "Dockerfile", ROOT),
        (STORES, ROOT / "tests" / "cluster" / "stores.Dockerfile", gateway),
    ):
        run(engine, "build", "--file", file, "--tag", image, *target, *options, context)
        with tempfile.TemporaryDirectory() as place:
            # As an archive, because kind takes images by name from docker only.
            run(engine, "save", "--output", f"{place}/image.tar", image)
            run("kind", "load", "image-archive", f"{place}/image.tar", "--name", cluster)


def printed(script: str, *options: str) -> str:
    """What a script of this directory prints; it gets what is missing, or says why it cannot."""
    command = ["sh", str(ROOT / "scripts" / script), *options]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def run(*command: "str | Path") -> None:
    """Runs a program, which tells itself what it does."""
    subprocess.run([str(word) for word in command], check=True)


def succeeds(*command: str) -> bool:
    """Whether a program ends well."""
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
