"""What the Spark benchmarks share: a session, the clock, fleets of logs, and ratios of turns.

The clock is the CPU time of this process and of all that it started, Spark's JVM and its Python
workers among them, or the wall's. A turn that needs no Spark is timed by this process alone: the
JVM compiles and tidies up behind the turns before it. A round takes each turn once, the order going
round; a ratio belongs to a round. Work is large enough for fixed costs not to matter.

KSEG_BENCH_ROUNDS says how many rounds (9), KSEG_BENCH_MIB how large a log is (64), KSEG_BENCH_GIB
how much there is for workers to do (1; of fast work 8 and 16 times as much), KSEG_BENCH_SECONDS
how long one core takes for work that is to be spread over two (10), and KSEG_BENCH_SEGMENTS how
many small segments there are (1000).
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import datagen, pairs
from kseg.files.names import segment_name
from kseg.format.header import scan_all

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

Job = Callable[[], object]
Round = dict[str, float]


def setting(name: str, default: float) -> float:
    """A number from the environment."""
    return float(os.environ.get(f"KSEG_BENCH_{name}", default))


def rounds_of(
    turns: Mapping[str, Job],
    clock: Callable[[Job], float],
    *,
    own: Collection[str] = (),
    before: Callable[[str], None] = lambda label: None,
) -> list[Round]:
    """What each turn costs, round by round; a first round that compiles and loads is left out.

    Args:
        turns: by label.
        clock: what a job costs, in seconds.
        own: labels of turns that this process does by itself, which its own CPU time measures.
        before: prepares for a turn, off the clock.
    """
    labels, rounds = list(turns), []
    for number in range(int(setting("ROUNDS", pairs.ROUNDS)) + 1):
        spent = {}
        for place in range(len(labels)):
            label = labels[(place + number) % len(labels)]
            before(label)
            spent[label] = (own_seconds if label in own else clock)(turns[label])
        rounds.append(spent)
    return rounds[1:]


def summary(
    rounds: list[Round], name: str, ratio: Callable[[Round], float], goal: str, **more: object
) -> dict[str, Any]:
    """The ratio of each round as a median with quartiles, and the median cost of each turn."""
    ratios = [ratio(each) for each in rounds]
    spread = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios
    return {
        name: round(statistics.median(ratios), 3),
        "quartiles": [round(one, 3) for one in (spread[0], spread[-1])],
        "goal": goal,
        "rounds": len(rounds),
        "load average": round(os.getloadavg()[0], 1),
        "seconds": {
            label: round(statistics.median(each[label] for each in rounds), 3)
            for label in rounds[0]
        },
        **more,
    }


# ---- clocks and cores ----------------------------------------------------------------------------


def wall_seconds(job: Job) -> float:
    """How long a job takes."""
    begun = time.perf_counter()
    job()
    return time.perf_counter() - begun


def cpu_seconds(job: Job) -> float:
    """The CPU time that a job takes, here and in everything below this process."""
    before = tree_seconds(os.getpid())
    job()
    return tree_seconds(os.getpid()) - before


def own_seconds(job: Job) -> float:
    """The CPU time that a job takes of this process, and of no other."""
    begun = time.process_time()
    job()
    return time.process_time() - begun


def tree_seconds(process: int) -> float:
    """CPU time so far of a process and those below it, of ended ones too."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):  # it ended while we looked
        return 0.0
    own = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return own + sum(map(tree_seconds, list(children_of(process))))


def children_of(process: int) -> Iterator[int]:
    """The processes that one has started."""
    for task in _tasks_of(process):
        with suppress(FileNotFoundError, ProcessLookupError):  # this thread has ended
            yield from map(int, (task / "children").read_text().split())


def _tasks_of(process: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{process}/task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return []


def spread_over(cores: set[int], process: int) -> None:
    """Let a process, its threads and those below it run on these cores only."""
    for task in _tasks_of(process):
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(task.name), cores)
    for child in list(children_of(process)):
        spread_over(cores, child)


# ---- logs ----------------------------------------------------------------------------------------


def fleet(corpus: datagen.Corpus, copies: int) -> list[str]:
    """So many partitions, all of them one log under many names; they lie beside it."""
    log = Path(corpus.directory)
    partitions = [log.with_name("fleet") / f"orders-{number}" for number in range(copies)]
    for partition in partitions:
        partition.mkdir(parents=True, exist_ok=True)
        for file in log.iterdir():
            if not (partition / file.name).exists():
                os.link(file, partition / file.name)
    return list(map(str, partitions))


def fleet_of(corpus: datagen.Corpus, gibibytes: float) -> list[str]:
    """As many partitions as have so many bytes; KSEG_BENCH_GIB times as many where it is given."""
    size = setting("GIB", 1) * gibibytes * (1 << 30)
    return fleet(corpus, math.ceil(size / corpus.file_bytes))


def many(corpus: datagen.Corpus, partitions: int, segments: int) -> str:
    """A data directory of so many partitions with so many segments each, all of them one."""
    log = Path(corpus.directory)
    data = log.with_name(f"many-{partitions}x{segments}")
    for partition in range(partitions):
        directory = data / f"orders-{partition}"
        directory.mkdir(parents=True, exist_ok=True)
        for number in range(segments):
            name = f"{number * corpus.records:020}"
            for file in log.glob(f"{0:020}.*"):
                place = directory / f"{name}{file.suffix}"
                if not place.exists():
                    os.link(file, place)
    return str(data)


def cut(corpus: datagen.Corpus, segments: int, under: Path) -> Path:
    """The same batches as about so many segments of one log."""
    log = memoryview(corpus.log.read_bytes())
    table = scan_all(log, on_bad_crc="ignore")
    goals = [len(log) * number // segments for number in range(segments)]
    firsts = sorted(set(table.position.searchsorted(goals).tolist()))
    under.mkdir(parents=True)
    for first, after in zip(firsts, [*firsts[1:], len(table)], strict=True):
        end = int(table.position[after]) if after < len(table) else len(log)
        (under / segment_name(int(table.base_offset[first]))).write_bytes(
            log[int(table.position[first]) : end]
        )
    return under


# ---- Spark ---------------------------------------------------------------------------------------


def noop(frame: DataFrame) -> Job:
    """Read everything and drop it."""
    return lambda: frame.write.format("noop").mode("overwrite").save()


def dummy_source() -> type:
    """A source of the record batches in Arrow files, a task for each of a directory's.

    A local class, so that Spark carries it along.
    """
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class ReadyReader(DataSourceReader):
        def __init__(self, path: str) -> None:
            self.path = path

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(str(path)) for path in sorted(Path(self.path).iterdir())]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            import pyarrow

            with pyarrow.memory_map(partition.value) as source:
                reader = pyarrow.ipc.open_file(source)
                for number in range(reader.num_record_batches):
                    yield reader.get_batch(number)

    class ReadySource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "ready"

        def schema(self) -> str:
            return str(self.options["ddl"])

        def reader(self, schema: Any) -> DataSourceReader:
            return ReadyReader(self.options["path"])

    return ReadySource
