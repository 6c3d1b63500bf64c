"""Counts by queries of DuckDB and Polars beside `scan.count()`.

A query has the start of its engine on top.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from bench.case import Case, made
from bench.pairs import Contest, Versus
from kseg.records.scan import scan

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

_LOG: Final = "v2-plain-1000-16k"
_BY_PLACE: Final = "select topic, partition, count(*) as n from self group by topic, partition"


def lazy_cases() -> list[Case]:
    """A count, and counts by topic and partition, by each engine."""
    named: dict[str, Callable[[Any], Callable[[], int]]] = {
        "DuckDB count(*)": partial(_duckdb, "select count(*) from self"),
        "DuckDB group by": partial(_duckdb, _BY_PLACE),
        "Polars count(*)": partial(_polars, "select count(*) from self"),
        "Polars group by": partial(_polars, _BY_PLACE),
    }
    return [
        Case("lazy", name, "record", partial(_prepare, query=query))
        for name, query in named.items()
    ]


def _prepare(_stack: ExitStack, *, query: Callable[[Any], Callable[[], int]]) -> Contest:
    log = made(_LOG)
    records = scan(log.log)
    return Contest(query(records), (Versus("scan.count()", records.count),), log.records)


def _duckdb(text: str, records: Any) -> Callable[[], int]:
    import duckdb

    connection = duckdb.connect()
    connection.register("self", records.dataset())
    return lambda: int(connection.execute(text).fetchall()[0][-1])


def _polars(text: str, records: Any) -> Callable[[], int]:
    frame = records.lazy()
    return lambda: int(frame.sql(text).collect().row(0)[-1])
