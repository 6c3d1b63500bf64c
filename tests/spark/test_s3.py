"""Logs in S3: the same rows as on a disk, by ranged reads, from a moto server of our own."""

from __future__ import annotations

import logging
import random
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import kseg
from kseg.arrow import to_record_batch
from kseg.cli.main import run
from kseg.constants import Compression
from kseg.errors import NotALogError
from kseg.log.segment.reader import Segment
from kseg.log.tier.tier import Tier
from kseg.spark import jobs
from kseg.spark.options import parse_options
from kseg.spark.plan import list_logs, make_plan
from kseg.spark.reading import read_split
from kseg.spark.staging import parse_sink_options
from kseg.stores import path as object_path
from kseg.stores import store as stores
from kseg.stores.path import RemotePath, place, whole_object
from kseg.stores.store import Store
from tests import tiers
from tests.builders import batch, record, write_segment

pytestmark = pytest.mark.spark

FIELDS = ("offset", "timestamp", "key", "value")
BUCKET = "s3://archive"


@pytest.fixture(scope="module")
def s3(s3_socket: socket.socket, fixtures_dir: Path) -> Iterator[Any]:
    """A store with all of one broker's logs under `plain/`."""
    import s3fs
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application = Faulty(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, application, threaded=True, fd=s3_socket.fileno())
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    system = s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False)
    system.mkdir("archive")
    system.put(str(fixtures_dir / "new" / "4.2.0-plain"), "archive/plain", recursive=True)
    system.faults = application
    yield system
    server.shutdown()
    serving.join()
    server.server_close()


class Faulty:
    """A server that can fail one request, counted from 1.

    Attributes:
        seen: method and query of each request since `arm`.
    """

    def __init__(self, application: Any) -> None:
        self._application = application
        self.arm(0, "")

    def arm(self, fails_at: int, how: str) -> None:
        """Fail a request: "refused", "busy" for once, or "cut" after it was carried out."""
        self._fails_at, self._how = fails_at, how
        self.seen: list[str] = []

    def __call__(self, environ: dict[str, Any], start: Any) -> Any:
        self.seen.append(f"{environ['REQUEST_METHOD']} {environ['QUERY_STRING']}")
        if len(self.seen) != self._fails_at:
            return self._application(environ, start)
        if self._how == "cut":
            b"".join(self._application(environ, lambda *_: None))
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionError("the connection is cut")
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start("403 Forbidden" if self._how == "refused" else "503 Slow Down", [])
        return [b""]


def put(system: Any, local: Path, url: str) -> str:
    system.put(str(local), url, recursive=True)
    return url


def rows(path: object, **options: str) -> list[Any]:
    """What the tasks of a plan read, here in this process."""
    given = parse_options({"path": str(path), **options})
    splits = [split for task in make_plan(list_logs(given), given) for split in task]
    return [
        (split.topic, split.partition, *row.values())
        for split in splits
        for columns in read_split(split, FIELDS, given)
        for row in to_record_batch(columns, fields=FIELDS).to_pylist()
    ]


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """Two segments of many batches, the first of which is worth cutting."""
    values = [bytes([number % 251]) * 700 for number in range(3_000)]
    ones = [
        batch([record(value) for value in values[start : start + 10]], base_offset=start)
        for start in range(0, 3_000, 10)
    ]
    write_segment(tmp_path / "data" / "orders-0", 0, *ones[:250])
    write_segment(tmp_path / "data" / "orders-0", 2_500, *ones[250:])
    return tmp_path / "data"


def test_spark_reads_the_rows_of_a_store(spark: SparkSession, s3: Any, fixtures_dir: Path) -> None:
    local = fixtures_dir / "new" / "4.2.0-plain"
    columns = "topic,partition,offset,timestampMs,key,value,headers,position"
    frames = [
        spark.read.format("kseg").option("columns", columns).load(str(path))
        for path in (f"{BUCKET}/plain", local)
    ]
    order = ("topic", "partition", "offset")
    ours, theirs = (frame.sort(*order).toArrow() for frame in frames)
    assert ours.num_rows > 100
    assert ours.equals(theirs)


def test_a_data_directory_a_log_a_segment_and_a_pattern_are_found(
    s3: Any, large: Path, fixtures_dir: Path
) -> None:
    put(s3, large, f"{BUCKET}/found")
    whole = rows(large)
    first = rows(large / "orders-0" / f"{0:020d}.log")
    assert rows(f"{BUCKET}/found") == whole
    assert rows(f"{BUCKET}/found/orders-0/") == whole
    assert rows(f"s3a://archive/found/orders-0/{0:020d}.log") == first
    assert rows(f"{BUCKET}/fo*/orders-?") == whole
    assert rows(f"{BUCKET}/found", topic="orders", startingOffsets="2600") == [
        row for row in whole if row[2] >= 2600
    ]


def test_a_large_segment_is_cut_and_an_index_in_the_store_is_asked(s3: Any, tmp_path: Path) -> None:
    from kseg.format.builder import BatchBuilder
    from kseg.log.config import LogConfig
    from kseg.log.log import Log

    path = tmp_path / "data" / "orders-0"
    path.parent.mkdir()
    with Log.open(path, mode="append", create=True, config=LogConfig()) as log:
        for start in range(0, 2_000, 10):
            builder = BatchBuilder(compression=Compression.NONE)
            for number in range(start, start + 10):
                builder.append(value=b"%07d" % number * 100, timestamp_ms=1_700_000_000_000)
            log.append(builder.build())
    put(s3, path.parent, f"{BUCKET}/cut")
    options = {"targetPartitionBytes": "200k", "startingOffsets": "1234"}
    assert rows(f"{BUCKET}/cut", **options) == rows(path.parent, **options)
    with Segment.open(place(f"{BUCKET}/cut/orders-0/{0:020d}.log")) as segment:
        assert segment.offset_index.entry_count > 100
        assert segment.start_for_offset(1_234).position > 0


@pytest.mark.parametrize(
    ("url", "options", "error", "message"),
    [
        (f"{BUCKET}/nowhere", {}, FileNotFoundError, "nowhere"),
        ("s3://no-such-bucket/x", {}, (OSError, NotALogError), "no-such-bucket"),
        (f"{BUCKET}/plain", {"topic": "other"}, NotALogError, "no topic of topic=.other."),
        (f"{BUCKET}/plain", {"isolation": "read_committed"}, ValueError, "needs local files"),
        ("nfs4://host/x", {}, ValueError, "neither a file nor in a store"),
    ],
)
def test_what_cannot_be_read_is_one_line(
    s3: Any, url: str, options: dict[str, str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        rows(url, **options)
    assert "\n" not in str(caught.value)


# ---- tiers ---------------------------------------------------------------------------------------


def test_spark_reads_a_tier_in_a_store(
    spark: SparkSession, s3: Any, fixtures_dir: Path, tmp_path: Path
) -> None:
    case = fixtures_dir / "tiered" / "4.2.0-aiven-zstd-encrypted"
    keys = {file.name.partition(".")[0]: str(file) for file in case.glob("keys/*.private.pem")}
    url = put(s3, case / "remote", f"{BUCKET}/tiers/spark")
    path = str(case / "local" / "txn-0")
    for isolation in ("read_uncommitted", "read_committed"):
        options = {
            "tier": url,
            "tierKeys": ",".join(f"{key}={file}" for key, file in keys.items()),
            "isolation": isolation,
            "columns": "offset,value",
        }
        frame = spark.read.format("kseg").options(**options).load(path)
        view = Tier.of(case / "remote", keys=keys).log(path).view
        wanted = [
            (offset, None if value is None else bytes(value))
            for piece in view.read(columns=("offset", "value"), isolation=isolation)
            for offset, value in zip(piece["offset"].tolist(), piece["value"], strict=True)
        ]
        found = [
            (row.offset, None if row.value is None else bytes(row.value)) for row in frame.collect()
        ]
        assert sorted(found) == wanted
        assert len(found) > 100


def test_a_read_of_the_last_segment_asks_for_no_other(
    s3: Any, fixtures_dir: Path, tmp_path: Path
) -> None:
    case = fixtures_dir / "tiered" / "4.2.0-aiven-plain"
    url = put(s3, case / "remote", f"{BUCKET}/tiers/last")
    tier, store = Tier.of(url), Store.of(url)
    log = tier.log(case / "local" / "plain-0")
    newest = max(copy.segment.max_timestamp for copy in log.copies.values())
    before = store.requests
    (found,) = kseg.scan(log.view.path, tier=tier, time=(newest, None), columns=("offset",))
    assert len(found) >= 1
    assert store.requests - before <= 4  # its manifest, its time index and index, its log


def test_the_local_part_may_lie_in_a_store_too(s3: Any, tmp_path: Path) -> None:
    """A backup of a data directory, with the metadata topic and the log's start in it."""
    rng = random.Random(5)
    path = tmp_path / "data" / "orders-0"
    tiers.random_log(path, rng)
    copies = tiers.copies_of(path, tiers.id_text(rng), rng)
    tiers.put(tiers.LocalTier(tmp_path / "tier"), copies)
    start = copies[0].start + 1
    path.with_name("log-start-offset-checkpoint").write_text(f"0\n1\norders 0 {start}\n")
    tables = [
        kseg.scan(path, isolation=isolation, open_transactions="abort").to_arrow()
        for isolation in ("read_uncommitted", "read_committed")
    ]
    for log in path.glob("*.log"):
        if int(log.stem) <= copies[-1].start:
            log.unlink()
    tiers.write_metadata(path.parent, [(copy, state) for copy in copies for state in (0, 1)])
    tier = Tier.of(put(s3, tmp_path / "tier", f"{BUCKET}/both/tier"))
    url = put(s3, path.parent, f"{BUCKET}/both/data")
    for isolation, wanted in zip(("read_uncommitted", "read_committed"), tables, strict=True):
        found = kseg.scan(
            url, topics="orders", tier=tier, isolation=isolation, open_transactions="abort"
        )
        assert found.to_arrow().equals(wanted)
        offsets = [row[2] for row in rows(f"{url}/orders-0", tier=tier.root, isolation=isolation)]
        assert offsets == wanted["offset"].to_pylist()[: len(offsets)]
        assert len(offsets) > 40
    assert tier.log(f"{url}/orders-0").source == "metadata"
    assert tables[0]["offset"][0].as_py() == start


# ---- new objects ---------------------------------------------------------------------------------


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uploads of parts of 64 KiB."""
    from moto.s3 import models

    monkeypatch.setattr(models, "S3_UPLOAD_PART_MIN_SIZE", 1)
    for module in (object_path, stores):
        monkeypatch.setattr(module, "PART_BYTES", 64 << 10)


@pytest.mark.parametrize("name", ["o.parquet", "o.arrow", "o.jsonl", "o.csv"])
def test_an_export_into_a_store_is_that_into_a_disk(
    s3: Any, large: Path, tmp_path: Path, name: str, small_parts: None
) -> None:
    source = put(s3, large, f"{BUCKET}/exported") + "/orders-0"
    for out in (f"{BUCKET}/out/{name}", f"{tmp_path}/{name}"):
        assert run(["export", source, "-o", out]) == 0
    assert s3.cat_file(f"archive/out/{name}") == (tmp_path / name).read_bytes()
    assert run(["export", source, "-o", f"{BUCKET}/out/{name}", "--offset", "7.."]) == 3
    assert s3.cat_file(f"archive/out/{name}") == (tmp_path / name).read_bytes()


@pytest.mark.parametrize("how", ["refused", "busy", "cut"])
@pytest.mark.parametrize("size", [1_000, 150_000])
def test_a_fault_at_any_request_leaves_a_whole_object_or_none(
    s3: Any, how: str, size: int, small_parts: None
) -> None:
    data, fails_at, asked = bytes(size), 0, ["none yet"]
    while fails_at <= len(asked):
        fails_at += 1
        key, error = f"archive/faults/{how}-{size}-{fails_at}", None
        s3.faults.arm(fails_at, how)
        try:
            with whole_object(RemotePath(f"s3://{key}"), new=True) as sink:
                sink.write(data)
        except OSError as caught:
            error = caught
        asked = s3.faults.seen[:]
        s3.faults.arm(0, "")
        is_there = s3.exists(key)
        assert is_there or error is not None
        assert error is None or (error.filename == f"s3://{key}" and how != "busy")
        assert not is_there or s3.cat_file(key) == data
        assert not is_there or error is None or how == "cut"  # its answer was lost
        # Parts that a lost answer belongs to are unknown to the client.
        assert how == "cut" or "Uploads" not in s3.call_s3(
            "list_multipart_uploads", Bucket="archive"
        )
    assert len(asked) == (1 if size < 2_000 else 6)  # a start, three parts, a look, the end


# ---- jobs ----------------------------------------------------------------------------------------


def test_export_and_stats_of_a_store_are_those_of_a_disk(
    spark: SparkSession, s3: Any, large: Path, tmp_path: Path
) -> None:
    url = put(s3, large, f"{BUCKET}/fleet")
    tables, kept = [], []
    for number, path in enumerate((url, large)):
        job = tmp_path / f"job-{number}"
        written = jobs.export(spark, path, tmp_path / f"out-{number}", job=job)
        assert written.records == 3_000
        found = [pq.ParquetFile(tmp_path / f"out-{number}" / one.path).read()
                 for one in written.files]  # fmt: skip
        tables.append(pa.concat_tables(found).sort_by("offset"))
        (counted,) = jobs.stats(spark, path).report.partitions
        kept.append({**counted.document(), "path": ""})
    assert tables[0].equals(tables[1])
    assert kept[0] == kept[1]
    assert kept[0]["records"] == 3_000


URL = f"{BUCKET}/data"
#: What asks a store for what only a disk has.
REFUSED: dict[str, Callable[[Any, Path], object]] = {
    "verify": lambda spark, here: jobs.verify(spark, [here, URL]),
    "explain": lambda spark, here: jobs.explain(spark, URL),
    "reindex": lambda spark, here: jobs.reindex(spark, URL),
    "export into one": lambda spark, here: jobs.export(spark, here, URL),
    "a job's notes": lambda spark, here: jobs.stats(spark, here, job=URL),
    "a report": lambda spark, here: jobs.export(
        spark, here, here / "out", options={"onCorrupt": "skip", "reportPath": URL}
    ),
    "the sink": lambda spark, here: parse_sink_options({"path": URL}),
    "a stream": lambda spark, here: parse_options({"path": URL}).check_stream(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_a_disk_says_so_in_one_line(
    large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"^kseg: .*s3://archive/data.* local ") as caught:
        REFUSED[name](None, large)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "s3:").exists()
