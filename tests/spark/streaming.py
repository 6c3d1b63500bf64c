"""A stream from one data directory into another, as a program that may be killed at any moment.

python -m tests.spark.streaming SOURCE TARGET CHECKPOINT

Says `started` when Spark is there, and `done` at the end. Also the processes that die
with a program.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kseg.cli.demo import quiet_spark

#: Programs this short end before the second compiler has paid for itself.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def processes() -> dict[int, tuple[int, str]]:
    """Parent and command line of every process that we may look at."""
    found = {}
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((directory / "stat").read_text().rpartition(")")[2].split()[1])
            words = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        found[int(directory.name)] = (parent, words)
    return found


def descendants(ancestor: int, word: str = "") -> set[int]:
    """What a process has started, and these in turn; those with a word in their command line."""
    table = processes()

    def is_ours(pid: int) -> bool:
        while pid in table and pid != ancestor:
            pid = table[pid][0]
        return pid == ancestor

    return {
        pid
        for pid, (_, words) in table.items()
        if word in words and pid != ancestor and is_ours(pid)
    }


def main(source: str, target: str, checkpoint: str) -> None:
    with quiet_spark(2, java_options=JAVA) as spark:
        print("started", flush=True)
        query = (
            spark.readStream.format("kseg")
            .option("maxOffsetsPerTrigger", "300")
            .load(source)
            .writeStream.format("kseg")
            .option("path", target)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
