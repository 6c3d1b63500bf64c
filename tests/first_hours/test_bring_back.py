"""The stories of the page that brings a topic back, typed as they stand there, on small data."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from random import Random

import pytest

import kseg
from kseg.format.times import time_ms
from tests.adopted import Source, served, target
from tests.coordinators import OFFSETS, LogWriter, commit
from tests.first_hours.terminal import Terminal
from tests.tidy import tree

PAGE = (tree.ROOT / "docs" / "how-to" / "bring-a-topic-back.md").read_text("utf-8")
NOON_MS = time_ms("2026-11-28T12:00:00Z")
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.M)
COUNT = 4


def type_block(terminal: Terminal, heading: str, number: int = 0) -> None:
    """Type a block of a chapter but for Kafka's own commands; directories are below the shell's."""
    chapter = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    block = BLOCK.findall(chapter)[number].replace("\\\n", "")
    typed = [line for line in block.splitlines() if not line.startswith("kafka-")]
    assert typed
    for line in typed:
        is_plan = line.startswith("kseg ") and "--apply" not in line
        line = re.sub(r"/(?:var/lib|mnt)/", f"{terminal.directory}/", line)
        terminal.types(line, code=int(is_plan))


def written(home: Path, *, begin_ms: int = NOON_MS - 2_000) -> Source:
    """A topic with transactions, none of them open at its end."""
    source = Source(home, COUNT, Random(7), topic="orders", begin_ms=begin_ms)
    source.write(160, ends_all=True)
    return source


def check(home: Path, source: Source, topic: str = "orders", at_ms: int | None = None) -> None:
    for number in range(COUNT):
        path = home / f"{topic}-{number}"
        for isolation in ("read_uncommitted", "read_committed"):
            committed = isolation == "read_committed"
            assert served(path, isolation) == source.expected(
                number, committed=committed, at_ms=at_ms
            )
    assert kseg.verify(home).ok


def test_a_deleted_topic(terminal: Terminal) -> None:
    source = written(terminal.directory / "old")
    home = target(terminal.directory / "kafka", COUNT).path
    for number in range(COUNT):
        name = f"orders-{number}.{number:032x}-delete"
        (terminal.directory / "old" / f"orders-{number}").rename(home / name)
    (terminal.directory / "saved").mkdir()
    type_block(terminal, "A deleted topic")
    for path in home.glob("*-delete"):  # as the broker removes them
        shutil.rmtree(path)
    check(home, source)


def test_a_lost_disk(terminal: Terminal) -> None:
    """Each copy lacks what the other has."""
    source = written(terminal.directory / "copy-of-the-disk")
    shutil.copytree(source.home, terminal.directory / "broker-2")
    first, *_, last = sorted((source.home / "orders-1").glob("*.log"))
    first.write_bytes(first.read_bytes()[:-9])
    (terminal.directory / "broker-2" / "orders-1" / last.name).unlink()
    home = target(terminal.directory / "kafka", COUNT).path
    type_block(terminal, "A lost disk")
    check(home, source)


def test_another_cluster(terminal: Terminal) -> None:
    source = written(terminal.directory / "old-cluster")
    source.write_states()
    offsets = LogWriter(source.home / f"{OFFSETS}-0")
    offsets.add([commit("readers", "orders", 2, 5)], source.now_ms).write()
    home = target(terminal.directory / "kafka", COUNT, topic="old-orders").path
    type_block(terminal, "Another cluster")
    check(home, source, "old-orders")
    assert (terminal.directory / "groups.csv").read_text() == "old-orders,2,5\n"


def test_yesterday_at_noon(terminal: Terminal) -> None:
    source = written(terminal.directory / "backup")
    source.write_states()
    assert source.begin_ms < NOON_MS < source.now_ms
    home = target(terminal.directory / "kafka", COUNT, topic="orders-at-noon").path
    type_block(terminal, "Yesterday at noon")
    check(home, source, "orders-at-noon", NOON_MS)


def test_yesterday_at_noon_on_the_same_cluster(terminal: Terminal) -> None:
    source = written(terminal.directory / "kafka")
    type_block(terminal, "Yesterday at noon", 1)
    for number in range(COUNT):
        rows = source.expected(number, committed=False, at_ms=NOON_MS)
        assert served(source.home / f"orders-{number}", "read_uncommitted") == rows


def test_a_cluster_without_its_metadata(terminal: Terminal) -> None:
    source = written(terminal.directory / "kafka-old")
    source.write_states()
    home = target(terminal.directory / "kafka-new", COUNT).path
    type_block(terminal, "A cluster without its metadata")
    check(home, source)


@pytest.mark.parametrize("heading", re.findall(r"^## (.*)$", PAGE, re.M))
def test_every_chapter_with_commands_is_a_story(heading: str) -> None:
    chapter = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    has_commands = any(re.search("^kseg ", block, re.M) for block in BLOCK.findall(chapter))
    assert not has_commands or f'"{heading}"' in Path(__file__).read_text("utf-8")
