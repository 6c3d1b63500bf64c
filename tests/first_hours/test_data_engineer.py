"""A data engineer: records into frames and tables, files out of them, lines back into a log."""

from __future__ import annotations

from tests.first_hours.terminal import Terminal


def test_the_first_hour_of_a_data_engineer(terminal: Terminal) -> None:
    lines = "".join(
        f'{{"key": "k{n % 3}", "value": "v{n}", "timestamp": {1000 * n}}}\n' for n in range(10)
    )
    (terminal.directory / "lines.jsonl").write_text(lines)
    terminal.types(
        "kseg append data/orders-0 --bytes utf8 --keep-timestamps < lines.jsonl", "0", "9"
    )

    # Into whatever speaks Arrow.
    terminal.runs(
        """
        import kseg
        reader = kseg.scan("data/orders-0", offset=(4, 8), fields=("offset", "key", "value"))
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

    # And back: the tool's own lines make the same records.
    read = "kseg read data/orders-0 --format jsonl"
    terminal.types(f"{read} | kseg append data/again-0 --keep-timestamps")
    terminal.runs(
        """
        import kseg
        one, other = (kseg.scan(f"data/{name}").to_arrow() for name in ("orders-0", "again-0"))
        print(one.equals(other), one.num_rows)
        """,
        "True 10",
    )

    # A copy that was made twice: each offset once, within the bounds that were asked for.
    terminal.types("mkdir twice-0; cd twice-0; cp ../data/orders-0/*.log .; cp *.log 5.log")
    terminal.types("kseg read twice-0 --format jsonl | wc -l", "10")
    terminal.types("kseg read twice-0 --offset 5..7 --format jsonl | wc -l", "2")
    terminal.types("kseg verify twice-0", "and their bytes are the same", code=1)
