"""`kseg keyfilter`: filters of keys, by which a search for one key reads little."""

from __future__ import annotations

import kseg
from kseg.cli import output
from kseg.cli.failures import usage_errors
from kseg.files.selection import Selection


def keyfilter(
    paths: tuple[str, ...],
    out: str,
    topics: tuple[str, ...],
    partitions: tuple[tuple[int, int], ...],
    jobs: int,
    as_json: bool,
) -> int:
    """Run the verb; returns the exit code."""
    with usage_errors(), output.progress("keyfilter", 0, in_bytes=True) as bar:
        written = kseg.keyfilter(
            paths, out, chosen=Selection(topics, partitions), threads=jobs, progress=bar.to
        )
    if as_json:
        output.write_document(
            "keyfilter/1", {"path": output.path_field(paths), "filters": written.table_rows()}
        )
        return 0
    size = output.human_bytes(sum(row[2] for row in written.rows))
    records = output.counted(sum(row[1] for row in written.rows), "record")
    output.write_line(
        f"{out}: {output.counted(len(written.rows), 'filter')} written, {size}, of {records}"
    )
    return 0
