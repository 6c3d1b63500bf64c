"""The options of `kseg demo`."""

from __future__ import annotations

from typing import Any

import click

from kseg.cli.starting import Verb


@click.command(cls=Verb)
@click.option(
    "--no-spark", is_flag=True, help="Leave out the Spark job, which needs Java and pyspark."
)
def demo(**given: Any) -> int:
    """Take the tour, on a small log that a Kafka 4.2 broker wrote and that comes with kseg.

    Works on a copy in a temporary directory. Exits 1 if results differ between files, Arrow and
    Spark, or a log that was broken is not whole again.
    """
    from kseg.cli.demo import demo as run

    return run(**given)
