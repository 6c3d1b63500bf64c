"""`pytest bench`: the cases of `bench.cases` under pytest-benchmark, one test per case.

A test takes turns with its peers as `python -m bench` does and keeps the ratios in `extra_info`;
then pytest-benchmark times kseg alone. KSEG_BENCH_MIB makes the logs smaller.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from bench import cases, pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_benchmark.fixture import BenchmarkFixture

    from bench.pairs import Contest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A module `test_<group>` runs every case of its group."""
    if "contest" in metafunc.fixturenames:
        group = metafunc.module.__name__.rpartition("test_")[2]
        found = cases.cases((group,))
        metafunc.parametrize("contest", found, ids=[case.name for case in found], indirect=True)


@pytest.fixture
def contest(request: pytest.FixtureRequest) -> Iterator[Contest]:
    """The contest of a case, prepared; what it opened is closed behind it."""
    with ExitStack() as stack:
        yield request.param.prepare(stack)


@pytest.fixture
def run(benchmark: BenchmarkFixture) -> Callable[[Contest], None]:
    """Race a contest and time its subject."""

    def race_and_time(contest: Contest) -> None:
        for result in pairs.race(contest):
            benchmark.extra_info[result.peer] = {
                "median": result.median,
                "quartiles": result.quartiles,
            }
        benchmark.pedantic(contest.subject, rounds=pairs.ROUNDS, warmup_rounds=1)

    return race_and_time


@pytest.fixture(scope="session", autouse=True)
def _one_core() -> Iterator[None]:
    pairs.pin()
    yield
    cases.JAVA.close()
