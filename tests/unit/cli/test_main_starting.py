"""A process of the program's own: what it loads, and what it leaves as it was."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click import Context

from kseg.cli.main import VERBS, Verb, cli, run
from kseg.cli.verbs.spark import spark
from tests.builders import batch, record, write_segment

THREADS = "OPENBLAS_NUM_THREADS"
#: Runs `kseg info DIR`, then says how it left the process.
AFTER_A_VERB = """
import gc, os, sys
import kseg.cli.main
sys.argv = ["kseg", "info", sys.argv[1]]
try:
    kseg.cli.main.main()
except SystemExit as end:
    assert not end.code
print(gc.isenabled(), gc.get_freeze_count() > 0, len(os.listdir("/proc/self/task")))
print(os.environ.get("OPENBLAS_NUM_THREADS"))
"""


def after_a_verb(path: Path, environment: dict[str, str]) -> list[str]:
    """What `AFTER_A_VERB` says in an environment."""
    words = [sys.executable, "-c", AFTER_A_VERB, str(path)]
    ran = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
    return ran.stdout.splitlines()[-2:]


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    write_segment(tmp_path / "orders-0", 0, batch([record(b"v")]))
    return tmp_path / "orders-0"


@pytest.mark.parametrize("given", [None, "1"])
def test_numpy_gets_no_threads_and_processes_to_come_the_environment_as_it_was(
    partition: Path, given: str | None
) -> None:
    environment = {name: value for name, value in os.environ.items() if name != THREADS}
    if given is not None:
        environment[THREADS] = given
    assert after_a_verb(partition, environment) == ["True True 1", str(given)]


def test_every_verb_that_needs_numpy_is_started_so() -> None:
    commands = [cli.get_command(Context(cli), name) for name in VERBS]
    every = [one for one in commands if one is not spark] + list(spark.commands.values())
    assert [one.name for one in every if not isinstance(one, Verb)] == ["completion"]


def test_a_verb_in_the_process_of_others_leaves_collections_alone(partition: Path) -> None:
    frozen = gc.get_freeze_count()
    assert run(["info", str(partition)]) == 0
    assert gc.isenabled()
    assert gc.get_freeze_count() == frozen
