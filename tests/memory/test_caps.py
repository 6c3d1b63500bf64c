"""Memory above the imported baseline stays under 64 MiB and three times the largest batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import GZIP, LZ4, SNAPPY, ZSTD, batch, record, write_segment
from tests.memory import files
from tests.memory.capped import ALWAYS, MIB, capped
from tests.shares import WHOLE, share

CODECS = (0, GZIP, SNAPPY, LZ4, ZSTD)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return files.large_log(tmp_path_factory.mktemp("memory"))


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return files.single_records(tmp_path_factory.mktemp("memory"))


def test_the_cap_is_one(large: Path) -> None:
    code = """
np.ones(60 << 20, np.uint8)
try:
    np.ones(70 << 20, np.uint8)
except MemoryError:
    print("no room for ones")
try:
    list(kseg.scan(path))
except MemoryError:
    print("no room for a whole log")
"""
    assert capped(code, large) == "no room for ones\nno room for a whole log"


READING = """
for mapping in ("always", "never"):
    with kseg.Segment.open(path, mapping=mapping) as segment:
        print(sum(len(piece) for piece in segment.read()))
    found = kseg.scan(path, mapping=mapping, columns=("offset", "key", "value"))
    print(sum(len(batch) for batch in found.to_reader()))
    print(sum(len(table) for table in found.batches()))
    with kseg.Log.open(path.rpartition("/")[0], mapping=mapping) as log:
        committed = log.read(isolation="read_committed", columns=("offset",))
        print(sum(len(piece) for piece in committed))
        print(log.lookup(100).base_offset, log.lookup_time(9).offset, log.lookup_time(10))
"""


@pytest.mark.parametrize(("name", "records"), [("large", 64), ("single", 1)])
def test_streams_take_no_more_than_a_few_pieces(
    request: pytest.FixtureRequest, name: str, records: int
) -> None:
    path = request.getfixturevalue(name)
    printed = capped(READING, path).split("\n")
    batches = int(printed[2])
    assert batches > 1000
    expected = [str(batches * records)] * 2 + [str(batches), str(batches * records), "100 0 None"]
    assert printed == expected * 2


COMMANDS = {
    "to the screen": [
        "verify --jobs 1 {directory}",
        "dump --jobs 1 {path}",
        "dump --jobs 1 --format jsonl {path}",
        "dump --jobs 1 --batches {path}",
        "read --jobs 1 {directory}",
        "info {directory}",
    ],
    "to files": [
        "export --jobs 1 --format csv --output {out}/1 {directory}",
        "export --jobs 1 --format jsonl --output {out}/2 {directory}",
        "export --jobs 1 --format arrow --output {out}/3 {directory}",
        "export --jobs 1 --format parquet --output {out}/4 {directory}",
    ],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_take_no_more_than_a_few_pieces(large: Path, tmp_path: Path, name: str) -> None:
    run_capped(COMMANDS[name], large, tmp_path, cap=ALWAYS)


def test_two_threads_take_twice_that_at_most(large: Path, tmp_path: Path) -> None:
    lines = [line for name in COMMANDS for line in share(COMMANDS[name], 2, name)]
    two = [line.replace("--jobs 1", "--jobs 2") for line in lines]
    run_capped(two, large, tmp_path, cap=2 * ALWAYS)


def run_capped(commands: list[str], large: Path, out: Path, *, cap: int) -> None:
    """Each in its own process: what an allocator keeps of an earlier one is no memory in use."""
    places = {"path": large, "directory": large.parent, "out": out}
    for line in commands:
        words = line.format(**places).split()
        # Verify finds something: all records of these batches have the same offset.
        code = f"""
import os
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
sys.exit(run({words!r}) != {int(words[0] == "verify")})
"""
        capped(code, large, cap=cap, imports="pyarrow.csv, pyarrow.parquet")


LITTLE = """
import os, signal
for words in {commands!r}:
    for more in range(8 << 20, 38 << 20, {step} << 20):
        child = os.fork()
        if not child:
            signal.alarm(60)  # ends one that waits for a thread that died
            out = os.open(path + ".out", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            os.dup2(out, 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            with open("/proc/self/status") as status:
                data = next(line for line in status if line.startswith("VmData"))
            now = int(data.split()[1]) * 1024
            resource.setrlimit(resource.RLIMIT_DATA, (now + more, now + more))
            os._exit(run(words))
        status = os.waitpid(child, 0)[1]
        with open(path + ".out") as told:
            last = told.read().rstrip().rpartition("\\n")[2]
        fit = status == 0 or (os.WEXITSTATUS(status) == 4 and last.startswith("kseg: " + path))
        if not fit:
            print(words, more >> 20, status, last)
"""


def test_two_threads_for_which_there_is_little_memory_end_with_an_error_of_the_file(
    large: Path,
) -> None:
    places = {"path": large, "directory": large.parent, "out": "nowhere"}
    deep = "dump --jobs 2 --kafka --deep-iteration --print-data-log {path}"
    lines = ["dump --jobs 2 {path}", "dump --jobs 2 --format jsonl {path}", deep]
    commands = [line.format(**places).split() for line in lines]
    imports = "kseg.cli.dump, kseg.cli.kafka_dump.run"
    code = LITTLE.format(commands=commands, step=3 if WHOLE else 6)
    assert capped(code, large, cap=MIB << 10, imports=imports) == ""


REINDEXING = """
for mapping in ("always", "never"):
    with kseg.Segment.open(path, mapping=mapping) as segment:
        swept = sweep.sweep_segment(
            segment,
            config=kseg.LogConfig(),
            producers=producers.ProducerState(),
            epochs=epochs.LeaderEpochs(),
        )
    print(swept.next_offset, swept.error, len(swept.offset_entries) // 8)
plan = kseg.plan_reindex(path.rpartition("/")[0])
print(*(each.kind.value for each in plan.files))
"""


@pytest.mark.parametrize("name", ["large", "single"])
def test_all_that_a_segment_says_takes_the_memory_of_its_index_entries(
    request: pytest.FixtureRequest, name: str
) -> None:
    path = request.getfixturevalue(name)
    printed = capped(REINDEXING, path, imports=_MODULES).split("\n")
    assert printed[0] == printed[1]
    end_offset, error, entries = printed[0].split()
    assert (int(end_offset) > 1000, error, int(entries) > 1000) == (True, "None", True)
    assert printed[2] == "index timeindex snapshot"


_MODULES = (
    "kseg.log.recovery.sweep as sweep, kseg.log.producers.state as producers, "
    "kseg.files.checkpoints as epochs"
)

# ---- bombs
# ---------------------------------------------------------------------------------

SKIP = """
for path in paths:
    errors = []
    with kseg.Segment.open(path) as segment:
        rows = sum(len(p) for p in segment.read(on_corrupt=errors.append, inflated_max={most}))
    print(rows, *(type(error).__name__ for error in errors))
"""
NO_LIMIT = SKIP.format(most=2**31 - 1)


def test_bombs_take_three_times_what_they_hold_or_nothing(tmp_path: Path) -> None:
    inflated = 96 * MIB
    bombs = [files.bomb(tmp_path, codec, inflated) for codec in CODECS[1:]]
    assert max(path.stat().st_size for path in bombs) < inflated // 10
    count = inflated // 1009
    whole = capped(NO_LIMIT, *bombs, cap=ALWAYS + 3 * inflated)
    assert whole.split("\n") == [str(count + 1)] * 4
    refused = capped(SKIP.format(most=MIB), *bombs, cap=ALWAYS)
    assert refused.split("\n") == ["1 LimitExceededError"] * 4


def test_one_record_larger_than_a_piece_takes_three_times_its_size(tmp_path: Path) -> None:
    size = 80 * MIB
    paths = [
        write_segment(tmp_path / str(codec), 0, files.batch_of(size, 1, codec=codec))
        for codec in (0, ZSTD, LZ4)
    ]
    assert capped(NO_LIMIT, *paths, cap=ALWAYS + 3 * size).split("\n") == ["1"] * 3


def test_millions_of_messages_in_one_of_07_are_listed_a_piece_at_a_time(tmp_path: Path) -> None:
    count = 2_000_000
    path = files.tiny_messages07(tmp_path, count)
    assert capped(NO_LIMIT, path, cap=ALWAYS + 3 * 9 * count) == str(count + 1)
    assert capped(SKIP.format(most=MIB), path) == "1 LimitExceededError"


# ---- numbers that lie
# ---------------------------------------------------------------------------------


def test_a_record_count_is_no_allocation_size(tmp_path: Path) -> None:
    paths = []
    for codec in CODECS:
        for count in (2**31 - 1, 2**30, -1):
            lying = batch([record()] * 20, count=count, codec=codec)
            directory = tmp_path / f"{codec} {count}"
            paths.append(write_segment(directory, 0, lying, files.batch_of(10, 1)))
    for line in capped(NO_LIMIT, *paths).split("\n"):
        rows, error = line.split()
        assert error == "InvalidRecordError"
        assert int(rows) in (1, 21)  # those in front of the fault, where they lie plain


LIES = """
def errors_of(**where):
    errors = []
    rows = sum(len(piece) for piece in segment.read(on_corrupt=errors.append, **where))
    return [rows, *(error.stop.name for error in errors)]

for path in paths:
    for mapping in ("never", "always"):
        with kseg.Segment.open(path, mapping=mapping, is_last=False) as segment:
            print(*errors_of(), end=" | ")
            if mapping == "never":
                print(*errors_of(verify_crc=False), end=" | ")
            table = segment.batches()
            print(len(table), table.stop.name, len(segment.batches(verify=False)))
"""
SPARSE_BYTES = 300 * MIB


def test_a_length_that_lies_in_a_sparse_file_takes_no_memory(tmp_path: Path) -> None:
    whole = files.batch_of(10, 1)
    paths = []
    for codec in (0, GZIP):
        honest = batch([record(bytes(40))], codec=codec, base_offset=1, count=2**31 - 1)
        length = SPARSE_BYTES - len(whole) - 12
        lying = whole + honest[:8] + length.to_bytes(4, "big") + honest[12:]
        paths.append(files.sparse(tmp_path / str(codec), lying, SPARSE_BYTES))
    assert (
        capped(LIES, *paths).split("\n")
        == [
            "1 BAD_CRC | 1 BAD_CRC | 1 BAD_CRC 2",
            "1 BAD_CRC | 1 BAD_CRC 2",
        ]
        * 2
    )


def test_zeros_to_the_end_of_a_sparse_file_take_no_memory(tmp_path: Path) -> None:
    path = files.sparse(tmp_path, files.batch_of(10, 1), SPARSE_BYTES)
    assert capped(LIES, path).split("\n") == [
        "1 ZERO_TAIL | 1 ZERO_TAIL | 1 ZERO_TAIL 1",
        "1 ZERO_TAIL | 1 ZERO_TAIL 1",
    ]


def test_files_beside_the_log_may_be_of_any_length(tmp_path: Path) -> None:
    paths = []
    for suffix in (".index", ".timeindex", ".txnindex", ".snapshot"):
        paths.append(write_segment(tmp_path / suffix / "huge-0", 0, files.batch_of(10, 1)))
        with paths[-1].with_suffix(suffix).open("wb") as file:
            file.write(b"\x00\x00\x00\x01" * 40)
            file.truncate(2**33)
    code = """
for path in paths:
    log = kseg.Log.open(path.rpartition("/")[0])
    committed = log.read(isolation="read_committed", time=(0, None))
    print(log.last_stable_offset, log.lookup(0).position, log.lookup_time(0).offset, end=" ")
    print(sum(len(piece) for piece in committed))
"""
    assert capped(code, *paths).split("\n") == ["1 0 0 1"] * 4
