"""A data engineer: records into frames and tables, files out of them, lines back into a log."""

from __future__ import annotations

from tests.first_hours.terminal import Terminal

LINES = "".join(
    f'{{"key": "k{n % 3}", "value": "v{n}", "timestamp": {1000 * n}}}\n' for n in range(10)
)
APPEND = "kseg append data/orders-0 --bytes utf8 --keep-timestamps --batch-records 2 < lines.jsonl"


def test_the_first_hour_of_a_data_engineer(terminal: Terminal) -> None:
    (terminal.directory / "lines.jsonl").write_text(LINES)
    terminal.types(APPEND, "0", "9")

    # Into whatever speaks Arrow.
    terminal.runs(
        """
        import kseg
        reader = kseg.scan("data/orders-0", offset=(4, 8), columns=("offset", "key", "value"))
        print(reader.to_arrow().to_pylist())
        import pyarrow as pa
        print(pa.table(kseg.scan("data", time=(2000, 4000)))["value"].to_pylist())
        """,
        "[{'offset': 4, 'key': b'k1', 'value': b'v4'}",
        "'value': b'v7'}]",
        "[b'v2', b'v3']",
    )

    # Files that others read.
    terminal.types("kseg export data -o out", "orders-0.parquet: 10 records")
    terminal.types("kseg export data --format csv --bytes utf8 -o out", "orders-0.csv: 10 records")
    terminal.types("kseg export data --offset 2..5 -o few.jsonl", "few.jsonl: 3 records")
    terminal.runs(
        """
        import pyarrow.parquet as pq
        print(pq.read_table("out/orders-0.parquet").num_rows)
        """,
        "10",
    )

    # As what they mean, and where a lake looks for them.
    decoded = "--decode-key text --decode-value text"
    terminal.types(f"kseg read data/orders-0 {decoded} --last 1", 'key="k0" value="v9"')
    terminal.types(f"kseg export data {decoded} --partition-by day,topic -o lake", "in 1 file")
    terminal.runs(
        """
        import duckdb
        lake = "from read_parquet('lake/**/*.parquet', hive_partitioning = true)"
        print(duckdb.sql(f"select day, topic, max(value), count(value_error) {lake} group by all"))
        """,
        "1970-01-01 │ orders",
        "v9",
    )

    # And back: the tool's own lines make the same records.
    read = "kseg read data/orders-0 --format jsonl"
    terminal.types(f"{read} | kseg append data/again-0 --keep-timestamps")
    terminal.runs(
        """
        import kseg
        tables = (kseg.scan(f"data/{name}").to_arrow() for name in ("orders-0", "again-0"))
        one, other = (table.drop_columns(["topic"]) for table in tables)
        print(one.equals(other), one.num_rows)
        """,
        "True 10",
    )

    # A copy that was made twice: each offset once, within the bounds that were asked for.
    terminal.types("mkdir twice-0; cd twice-0; cp ../data/orders-0/*.log .; cp *.log 5.log")
    terminal.types("kseg read twice-0 --format jsonl | wc -l", "10")
    terminal.types("kseg read twice-0 --offset 5..7 --format jsonl | wc -l", "2")
    terminal.types("kseg verify twice-0", "and their bytes are the same", code=1)


def test_a_damaged_file_gives_what_is_sound_to_who_asks_for_it(terminal: Terminal) -> None:
    (terminal.directory / "lines.jsonl").write_text(LINES)
    terminal.types(APPEND)
    flip = "printf x | dd of=data/orders-0/00000000000000000000.log bs=1 seek=150 conv=notrunc"
    terminal.types(flip)
    terminal.types("kseg verify data", "batch-crc", "lost: ", "offsets 2 to 3 (2 records", code=1)
    terminal.types("kseg read data/orders-0", "offset=1", "'kseg verify' lists the damage", code=1)
    skip = "kseg export data/orders-0 -o rest.csv --on-corrupt skip"
    terminal.types(skip, "rest.csv: 8 records", "does not match its checksum", code=1)
    terminal.runs(
        """
        import kseg
        log = kseg.scan("data", on_corrupt="skip")
        print(log.to_arrow()["offset"].to_pylist(), [type(fault).__name__ for fault in log.errors])
        try:
            kseg.scan("data").to_arrow()
        except kseg.CorruptRecordError as error:
            print(error)
        """,
        "[0, 1, 4, 5, 6, 7, 8, 9] ['CorruptRecordError']",
        "0000.log @ ",
    )
