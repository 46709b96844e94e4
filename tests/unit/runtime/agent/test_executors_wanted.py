"""Following the wanted number of executors, with a fake in the place of Spark."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError

from backfill.runtime.agent.executor_requests import Executors


@dataclass
class FakeContext:
    """A SparkContext with a cluster behind it that does what it is asked for at once."""

    executors: list[str] = field(default_factory=list)
    local: bool = False
    broken: bool = False
    requests: list[int] = field(default_factory=list)
    let_go: list[str] = field(default_factory=list)
    questions: int = 0
    stages: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Tasks that have ended, and all, of the stages in progress."""

    @property
    def _jsc(self) -> Any:
        self.questions += 1
        if self.broken:
            raise Py4JError("gone")
        return SimpleNamespace(sc=lambda: self)

    @property
    def _gateway(self) -> Any:
        return SimpleNamespace(new_array=lambda kind, size: [None] * size)

    @property
    def _jvm(self) -> Any:
        scala = SimpleNamespace(
            Option=SimpleNamespace(empty=lambda: None), Tuple2=lambda executor, why: executor
        )
        scheduler = SimpleNamespace(ExecutorDecommissionInfo=lambda why, host: why)
        org = SimpleNamespace(apache=SimpleNamespace(spark=SimpleNamespace(scheduler=scheduler)))
        java = SimpleNamespace(util=SimpleNamespace(HashMap=dict))
        return SimpleNamespace(
            scala=scala, org=org, java=java, PythonUtils=SimpleNamespace(toScalaMap=dict)
        )

    def statusTracker(self) -> Any:
        if self.broken:
            raise Py4JError("gone")
        infos = {
            stage: SimpleNamespace(numCompletedTasks=done, numTasks=tasks)
            for stage, (done, tasks) in self.stages.items()
        }
        # one more has ended since they were listed
        return SimpleNamespace(getActiveStageIds=lambda: [*infos, 99], getStageInfo=infos.get)

    def isLocal(self) -> bool:
        return self.local

    def getExecutorIds(self) -> Any:
        return SimpleNamespace(mkString=lambda separator: separator.join(self.executors))

    def requestTotalExecutors(self, total: int, local_tasks: int, hosts: dict[str, int]) -> bool:
        self.requests.append(total)
        return True

    def schedulerBackend(self) -> "FakeContext":
        return self

    def decommissionExecutors(
        self, named: list[str], adjust_total: bool, asked_by_executor: bool
    ) -> None:
        assert not adjust_total
        assert not asked_by_executor
        self.let_go += named


@dataclass
class Followed:
    """Executors of a fake context, asked again and again in a time that only passes here."""

    context: FakeContext
    now: float = 0.0

    def __post_init__(self) -> None:
        self.executors = Executors(lambda: self.context, lambda: self.now)

    def follow(self, target: int | None, later: float = 1.0) -> int:
        self.now += later
        return self.executors.follow(target)


def test_before_there_is_a_context_there_are_no_executors() -> None:
    assert Executors(lambda: None).follow(3) == 0


def test_in_local_mode_the_driver_is_its_only_executor_and_nothing_is_asked_for() -> None:
    spark = Followed(FakeContext(local=True))
    assert spark.follow(5) == 1
    assert spark.context.requests == []


def test_a_new_target_is_asked_for_once() -> None:
    spark = Followed(FakeContext(["1"]))
    assert [spark.follow(3), spark.follow(3)] == [1, 1]
    assert spark.context.requests == [3]
    spark.context.executors += ["2", "3"]
    assert spark.follow(3) == 3
    assert spark.context.let_go == []


def test_the_newest_executors_are_let_go_once_and_count_no_more() -> None:
    spark = Followed(FakeContext(["9", "10", "2", "11"]))
    assert spark.follow(2) == 2
    assert (spark.context.requests, spark.context.let_go) == ([2], ["10", "11"])
    spark.context.executors.remove("11")
    assert spark.follow(2) == 2
    assert spark.context.let_go == ["10", "11"]


def test_an_executor_that_comes_after_fewer_were_wanted_is_let_go_too() -> None:
    spark = Followed(FakeContext(["1"]))
    spark.follow(2)
    spark.follow(1)
    spark.context.executors.append("2")
    assert spark.follow(1) == 1
    assert spark.context.let_go == ["2"]


def test_more_are_wanted_again_while_some_are_leaving() -> None:
    spark = Followed(FakeContext(["1", "2", "3"]))
    spark.follow(1)
    assert spark.follow(2) == 1
    assert spark.context.requests == [1, 2]
    spark.context.executors.append("4")
    assert spark.follow(2) == 2


def test_without_a_target_executors_are_only_counted() -> None:
    spark = Followed(FakeContext(["1", "2"]))
    assert spark.follow(None) == 2
    assert spark.context.requests == []


def test_spark_is_asked_once_a_second_and_at_once_for_a_new_target() -> None:
    spark = Followed(FakeContext(["1"]))
    spark.follow(1)
    asked = spark.context.questions
    spark.follow(1, later=0.5)
    assert spark.context.questions == asked
    spark.follow(2, later=0.1)
    assert spark.context.requests == [1, 2]


def test_what_spark_does_not_answer_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    spark = Followed(FakeContext(["1"], broken=True))
    assert spark.follow(2) == 0
    assert "does not report its executors" in caplog.text
    spark.context.broken = False
    assert spark.follow(2) == 1
    assert spark.context.requests == [2]


@pytest.mark.parametrize(
    ("stages", "percent"),
    [
        ({}, None),
        ({1: (0, 8)}, 0),
        ({1: (7, 8)}, 80),
        ({1: (8, 8), 2: (0, 24)}, 20),
        ({1: (8, 8)}, 100),
        ({1: (0, 0)}, None),
    ],
)
def test_tasks_in_progress_are_counted_in_tenths(
    stages: dict[int, tuple[int, int]], percent: int | None
) -> None:
    assert Executors(lambda: FakeContext(stages=stages)).tasks_percent == percent


def test_tasks_of_a_spark_that_does_not_answer_are_unknown() -> None:
    broken = FakeContext(broken=True, stages={1: (1, 2)})
    assert Executors(lambda: broken).tasks_percent is None
    assert Executors(lambda: None).tasks_percent is None
