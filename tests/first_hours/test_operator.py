"""An operator whose disk is full: what is there, what may go, what is broken, what mends it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile, copytree

import pytest

from tests import full_disk
from tests.first_hours.terminal import Terminal


def test_the_first_hour_of_an_operator(terminal: Terminal, fixtures_dir: Path) -> None:
    case, data = fixtures_dir / "new" / "4.2.0-plain", terminal.directory / "data"
    copytree(case / "plain-ts-0", data / "plain-ts-0")
    for name in ("meta.properties", "log-start-offset-checkpoint"):
        copyfile(case / name, data / name)

    # What lies here?
    terminal.types("kseg info data", "partition", "plain-ts-0", "1.2 KiB", "26")
    terminal.types("kseg stats data", "plain-ts-0", "26")
    terminal.types("kseg verify data", "26 records: 0 errors")

    # A copy of it all, from one broker: this partition may be cut as asked.
    terminal.types("mkdir copy; cp -r data/plain-ts-0 copy/orders-0")
    terminal.types("kseg recover copy --apply")
    retain = "kseg retain copy/orders-0 --config retention.bytes=600"
    terminal.types(retain, "delete", "--apply", code=1)
    terminal.types("kseg info copy/orders-0", "1.2 KiB")
    terminal.types(f"{retain} --apply", "bytes of disk become free with:", "rm -r")
    terminal.types("kseg info copy/orders-0 --json", '"log_end_offset": 26')
    terminal.types("kseg verify copy/orders-0", ": 0 errors")

    # The power went: half a batch at the end.
    terminal.types("head -c 40 data/plain-ts-0/*24.log >> $(ls copy/orders-0/*.log | tail -1)")
    terminal.types("kseg verify copy/orders-0", "torn-tail")
    terminal.types("kseg recover copy/orders-0", "cut", code=1)
    terminal.types("kseg recover copy/orders-0 --apply")
    held = ("time-ahead", "time-negative")
    terminal.types("kseg verify copy/orders-0", *held, ": 0 errors, 3 warnings")

    # The last records are wrong: back to offset 24.
    terminal.types("kseg truncate copy/orders-0 --to 24", "--apply", code=1)
    terminal.types("kseg truncate copy/orders-0 --to 24 --apply")
    terminal.types("kseg info copy/orders-0 --json", '"log_end_offset": 24')

    # A disk that is gone in part hides nothing of the rest.
    terminal.types("ln -s /nowhere data/plain-ts-1; mkdir data/plain-ts-2")
    terminal.types(
        "kseg info data", "data/plain-ts-1: No such file", "plain-ts-0", "plain-ts-2", code=3
    )
    terminal.types("kseg lookup data --partition 0 --offset 7", "00000000000000000007.log")


@dataclass(frozen=True)
class Disk:
    """A disk under `disk`, and how it is filled up and emptied."""

    fill: Callable[[], None]
    empty: Callable[[], None]


@pytest.fixture
def disk(terminal: Terminal) -> Iterator[Disk]:
    """A real one where it can be made and mounted, otherwise a shim that stands for it."""
    place = full_disk.mounted(terminal.directory)
    if place is None:
        (terminal.directory / "disk").mkdir(exist_ok=True)
        yield Disk(terminal.fill_up, terminal.empty)
        return
    try:
        yield Disk(lambda: full_disk.fill(place), lambda: full_disk.unfilled(place))
    finally:
        full_disk.unmount(place)


def test_a_disk_that_is_full_to_its_last_block(terminal: Terminal, disk: Disk) -> None:
    terminal.types(
        "yes $(printf '%20000s' | tr ' ' x) | head -20 | sed 's/.*/{\"value\": \"&\"}/' |"
        " kseg append disk/data/orders-0 --bytes utf8 --config segment.bytes=50000",
        "offsets 0 to 19",
    )

    # What goes would be kept beside it, for which there is no room; without that it is freed.
    disk.fill()
    retain = "kseg retain disk/data --config retention.bytes=200000"
    terminal.types(f"{retain} --apply", "--backup-dir", "--no-backup", code=3)
    terminal.types("kseg info disk/data --json", '"log_start_offset": 0')
    terminal.types(f"{retain} --apply --no-backup", "bytes of disk are free again")
    disk.fill()
    terminal.types(
        "kseg truncate disk/data/orders-0 --to 17 --apply --no-backup", "bytes of disk are free"
    )

    # It ran full as the broker wrote, and the broker died.
    disk.empty()
    terminal.types("truncate -s -9 $(ls disk/data/orders-0/*.log | tail -1)")
    terminal.types("rm disk/data/.kafka_cleanshutdown")
    disk.fill()
    terminal.types("kseg recover disk/data --apply --no-backup", "torn-tail", "free again")
    terminal.types("kseg verify disk/data", ": 0 errors")
    disk.empty()
    terminal.types(
        """echo '{"value": "more"}' | kseg append disk/data/orders-0 --bytes utf8""",
        "offsets 16 to 16",
    )
