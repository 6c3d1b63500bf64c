"""`kseg partition`: the partition that producers send a key to."""

from __future__ import annotations

from kseg.cli import output
from kseg.cli.parsing import parse_key
from kseg.commands import printable
from kseg.records.partitioners import partition_for


def partition(keys: tuple[str, ...], partitions: int, partitioner: str, as_json: bool) -> None:
    """Run the verb."""
    found = [(key, partition_for(parse_key(key), partitions, partitioner)) for key in keys]
    if as_json:
        rows = [{"key": key, "partition": number} for key, number in found]
        head = {"partitions": partitions, "partitioner": partitioner}
        output.write_document("partition/1", {**head, "keys": rows})
        return
    for key, number in found:
        place = "any partition" if number is None else str(number)
        output.write_line(f"{printable(key)}  {place}")
