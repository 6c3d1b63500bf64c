"""`kseg report`: one HTML page about data directories, or its numbers as JSON."""

from __future__ import annotations

import os
from pathlib import Path

import click

from kseg.cli import output
from kseg.cli.failures import Exit, usage_errors
from kseg.cli.parsing import GivenSettings, Paths
from kseg.cli.settings import check_settings, data_directories
from kseg.files.whole_file import (
    refuse_in_data_directory,
)


def report(
    directories: Paths,
    out: str | None,
    keys: bool,
    jobs: int,
    given: GivenSettings,
    as_json: bool,
) -> int:
    """Run the verb; returns the exit code."""
    from kseg.analysis.report import report as run

    if (out is None) is not as_json:
        raise click.UsageError("Give -o FILE for a page, or --json.")
    if out is not None:
        if Path(out).suffix not in (".html", ".htm"):
            raise click.UsageError(f"{out}: the page is HTML; give a name that ends with .html.")
        with usage_errors():
            refuse_in_data_directory(out)
        if os.path.lexists(out):
            raise click.UsageError(f"{out} is there already; choose a new name.")
        if not Path(out).absolute().parent.is_dir():
            raise click.UsageError(f"{Path(out).absolute().parent} is no directory.")
    directories, given = data_directories(directories, given)
    with usage_errors(), output.progress("report", 0) as bar:
        broker_report = run(
            directories,
            keys=keys,
            **given.arguments,
            now=given.now_ms,
            threads=jobs,
            progress=bar.to,
        )
    check_settings(
        given.settings, {partition.topic for partition in broker_report.explain.partitions}
    )
    if out is None:
        output.write_document("report/1", {"path": list(directories), **broker_report.to_json()})
    else:
        broker_report.write(out)
        faults = len(broker_report.verify.findings) + len(
            tuple(broker_report.doctor.all_findings())
        )
        size = output.human_bytes(os.path.getsize(out))
        held = "names of topics and files, and keys" if keys else "names of topics and files"
        output.write_line(f"{out}: {size}, {output.counted(faults, 'finding')}; it holds {held}")
    return Exit.OK if broker_report.ok else Exit.FOUND
