"""IPython and editors complete the methods and the columns of what they hold."""

from __future__ import annotations

import jedi
import pytest

import kseg
from tests.tidy import tree

DATA = tree.ROOT / "kseg" / "demo_data"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("log.", {"append", "read", "records", "mode", "log_end_offset"}),
        ("columns.", {"offset", "timestamp", "key", "value", "headers", "to_polars", "topic"}),
        ("scan.", {"count", "head", "schema", "to_arrow", "to_pandas", "batches_arrow"}),
        ("table.", {"base_offset", "record_count", "max_timestamp", "codec"}),
        ("stats.", {"partitions", "to_pandas", "to_arrow"}),
        ("kseg.", {"scan", "Log", "topics", "partition_for", "write_topic", "errors"}),
    ],
)
def test_a_tab_offers_methods_and_columns(text: str, wanted: set[str]) -> None:
    scan = kseg.scan(DATA / "orders-0")
    names = {
        "kseg": kseg,
        "scan": scan,
        "log": kseg.Log.open(DATA / "orders-0"),
        "columns": next(iter(scan)),
        "table": next(scan.batches()),
        "stats": kseg.stats(DATA / "orders-0"),
    }
    offered = {one.name for one in jedi.Interpreter(text, [names]).complete()}
    assert wanted <= offered


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("log = kseg.Log.open('t-0')\nlog.", {"append", "read", "mode"}),
        ("for columns in kseg.scan('t-0'):\n    columns.", {"to_polars", "topic"}),
    ],
)
def test_an_editor_knows_the_types(code: str, wanted: set[str]) -> None:
    offered = {one.name for one in jedi.Script(f"import kseg\n{code}").complete()}
    assert wanted <= offered


def test_keys_of_columns_are_offered() -> None:
    columns = next(iter(kseg.scan(DATA / "orders-0", columns=("offset", "key"))))
    assert columns._ipython_key_completions_() == ["offset", "key"]
