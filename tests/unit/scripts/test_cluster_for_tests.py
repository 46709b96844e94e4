"""Which cluster `make e2e` uses, and what becomes of it; with fakes of kind and all that it
needs.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from fake_programs import ENGINE, FakePrograms

from repository import ROOT

SCRIPT = ROOT / "scripts" / "with_cluster.py"
REPORT = 'echo "tests on $(sed -n s/current-context:.//p "$KUBECONFIG")"'
MADE = "tests on kind-backfill-e2e-"


@pytest.fixture
def programs(tmp_path: Path) -> FakePrograms:
    return FakePrograms(tmp_path)


def with_cluster(
    programs: FakePrograms, command: str = REPORT, **variables: str
) -> "subprocess.CompletedProcess[str]":
    return programs.run(sys.executable, SCRIPT, "sh", "-c", command, **variables)


def kubeconfig(path: Path, context: str, server: str) -> str:
    entry = {"cluster": {"server": server}, "name": "any"}
    contexts = [{"name": context, "context": {"cluster": "any", "user": "any"}}]
    path.write_text(
        yaml.safe_dump({"clusters": [entry], "contexts": contexts, "current-context": context})
    )
    return str(path)


def test_without_a_kubeconfig_a_kind_cluster_is_made_filled_used_and_deleted(
    programs: FakePrograms, tmp_path: Path
) -> None:
    done = with_cluster(programs)
    assert done.returncode == 0, done.stderr
    assert MADE in done.stdout

    told = [
        re.sub(r"backfill-e2e-\d+", "NAME", re.sub(rf"{tmp_path}/(kind-|tmp)\w+/", "", call))
        for call in programs.calls
    ]
    gateway = tmp_path / ".cache" / "backfill-operator" / "versitygw-v1.8.0"
    images = [
        call
        for image, file, options, context in (
            ("localhost/backfill-operator:dev", "operator/Dockerfile", " --target=operator", ROOT),
            ("localhost/backfill-jobs:dev", "operator/Dockerfile", " --target=jobs", ROOT),
            ("localhost/backfill-spark:dev", "spark-images/Dockerfile", "", ROOT),
            ("localhost/backfill-stores:dev", "tests/cluster/stores.Dockerfile", "", gateway),
        )
        for call in (
            f"docker build --file {ROOT / file} --tag {image}{options} {context}",
            f"docker save --output image.tar {image}",
            "kind load image-archive image.tar --name NAME",
        )
    ]
    chart = "spark-operator/spark-operator --version 2.5.2"
    assert [
        re.sub(r"(kindest/node:v1\.34)\S+", r"\1", call)
        for call in told
        if not call.startswith("go ")
    ] == [
        "docker info",
        f"helm show chart {chart}",
        (
            "kind create cluster --name NAME --config kind.yaml --kubeconfig kubeconfig --image"
            " kindest/node:v1.34"
        ),
        *images,
        (
            f"helm install spark-operator {chart} --namespace spark-operator --create-namespace"
            ' --set-json spark.jobNamespaces=[""] --wait --timeout 5m'
        ),
        "kind delete cluster --name NAME --kubeconfig kubeconfig",
    ]


@pytest.mark.parametrize(
    ("broken", "does"), [("docker", '[ "$1" != build ]'), ("helm", '[ "$1" != install ]')]
)
def test_what_was_made_is_deleted_when_it_can_not_be_filled(
    programs: FakePrograms, broken: str, does: str
) -> None:
    programs.behave(broken, does)
    done = with_cluster(programs)
    assert done.returncode == 1
    assert re.fullmatch(rf"failed: \S*{broken} (build|install) .*\n", done.stderr)
    assert MADE not in done.stdout
    assert programs.calls[-1].startswith("kind delete cluster")


def test_the_status_is_that_of_the_tests(programs: FakePrograms) -> None:
    assert with_cluster(programs, "exit 5").returncode == 5
    assert programs.calls[-1].startswith("kind delete cluster")


def test_the_tests_are_told_how_its_api_server_is_killed(programs: FakePrograms) -> None:
    done = with_cluster(programs, 'echo "$RESTART_API_SERVER"')
    assert re.search(
        r"^docker exec backfill-e2e-\d+-control-plane pkill -KILL kube-apiserver$",
        done.stdout,
        re.MULTILINE,
    )


def test_a_cluster_that_is_kept_is_told_with_how_to_use_and_delete_it(
    programs: FakePrograms,
) -> None:
    done = with_cluster(programs, KEEP_CLUSTER="1")
    assert not [call for call in programs.calls if call.startswith("kind delete")]
    kept = re.search(
        r"export KUBECONFIG=(\S+); delete it: kind delete cluster --name (\S+)", done.stdout
    )
    assert kept is not None
    assert Path(kept[1]).read_text() == f"current-context: kind-{kept[2]}\n"


@pytest.mark.parametrize(
    ("context", "server"),
    [("kind-mine", "https://10.1.2.3:6443"), ("anything", "https://127.0.0.1:6443")],
)
def test_a_cluster_that_is_to_be_thrown_away_is_used_as_it_is(
    programs: FakePrograms, tmp_path: Path, context: str, server: str
) -> None:
    done = with_cluster(programs, KUBECONFIG=kubeconfig(tmp_path / "mine", context, server))
    assert (done.returncode, done.stdout) == (0, f"tests on {context}\n")
    assert programs.calls == []


def test_a_cluster_that_may_be_in_use_is_not_touched(
    programs: FakePrograms, tmp_path: Path
) -> None:
    given = kubeconfig(tmp_path / "theirs", "production", "https://10.1.2.3:6443")
    done = with_cluster(programs, KUBECONFIG=given)
    assert "the cluster of context production at 10.1.2.3 may be in use" in done.stdout
    assert MADE in done.stdout
    assert not [call for call in programs.calls if given in call]


def test_podman_takes_the_place_of_docker(programs: FakePrograms) -> None:
    programs.behave("docker", "exit 1")  # there, but without its daemon
    programs.behave("podman", ENGINE)
    programs.behave("kind", '[ "$1" != create ] || echo "with $KIND_EXPERIMENTAL_PROVIDER"')
    assert "with podman" in with_cluster(programs, "true").stdout
    assert [call.split()[1] for call in programs.calls if call.startswith("podman")] == [
        "info",
        *["build", "save"] * 4,
    ]


@pytest.mark.parametrize(
    ("gone", "named"),
    [("kind", "There is no kind here"), ("docker", "There is no docker or podman that runs here")],
)
def test_without_kind_or_containers_one_line_says_what_to_do(
    programs: FakePrograms, gone: str, named: str
) -> None:
    if gone == "docker":
        programs.behave("docker", "exit 1")
    else:
        programs.remove(gone)
    done = with_cluster(programs)
    assert (done.returncode, done.stderr) == (
        2,
        f"{named}: install it, or name a cluster of kind, k3d or this machine with KUBECONFIG\n",
    )
    assert not [call for call in programs.calls if call.startswith("kind")]


def test_a_chart_that_helm_does_not_find_is_told_before_anything_is_made(
    programs: FakePrograms,
) -> None:
    programs.behave("helm", '[ "$1" != show ]')
    done = with_cluster(programs, SPARK_OPERATOR_CHART="./spark-operator-chart")
    assert done.returncode == 2
    assert "helm finds no chart ./spark-operator-chart of version 2.5.2" in done.stderr
    assert "SPARK_OPERATOR_CHART" in done.stderr
    assert not [call for call in programs.calls if call.startswith("kind")]
