"""An operator whose disk is full: what is there, what may go, what is broken, what mends it."""

from __future__ import annotations

from pathlib import Path
from shutil import copyfile, copytree

from tests.first_hours.terminal import Terminal


def test_the_first_hour_of_an_operator(terminal: Terminal, fixtures_dir: Path) -> None:
    case, data = fixtures_dir / "new" / "4.2.0-plain", terminal.directory / "data"
    copytree(case / "plain-ts-0", data / "plain-ts-0")
    for name in ("meta.properties", "log-start-offset-checkpoint"):
        copyfile(case / name, data / name)

    # What lies here?
    terminal.types("kseg info data", "partition", "plain-ts-0", "1232", "26")
    terminal.types("kseg stats data", "plain-ts-0", "26")
    terminal.types("kseg verify data", "26 records: 0 errors")

    # A copy of it all, from one broker: this partition may be cut as asked.
    terminal.types("mkdir copy; cp -r data/plain-ts-0 copy/orders-0")
    terminal.types("kseg recover copy --apply")
    retain = "kseg retain copy/orders-0 --config retention.bytes=600"
    terminal.types(retain, "delete", "--apply", code=1)
    terminal.types("kseg info copy/orders-0", "1232")
    terminal.types(f"{retain} --high-watermark end --apply")
    terminal.types("kseg info copy/orders-0 --json", '"log_end_offset": 26')
    terminal.types("kseg verify copy/orders-0", ": 0 errors")

    # The power went: half a batch at the end.
    terminal.types("head -c 40 data/plain-ts-0/*24.log >> $(ls copy/orders-0/*.log | tail -1)")
    terminal.types("kseg verify copy/orders-0", "torn-tail")
    terminal.types("kseg recover copy/orders-0", "cut", code=1)
    terminal.types("kseg recover copy/orders-0 --apply")
    terminal.types("kseg verify copy/orders-0", ": 0 errors, 0 warnings")

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
