"""The program of docs/how-to/replay.md: a range of old records, sent to a broker once more."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kseg
from tests.interop.broker.broker import Broker
from tests.interop.kafka import needed
from tests.tidy import tree

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]


def test_a_replayed_range_keeps_keys_values_headers_times_and_partitions(tmp_path: Path) -> None:
    page = (tree.ROOT / "docs" / "how-to" / "replay.md").read_text("utf-8")
    (program,) = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    expected = []
    for number in (0, 1):
        path = tmp_path / "backup" / f"orders-{number}"
        with kseg.Log.open(path, mode="append", create=True) as log:
            for row in range(300):
                record = {
                    "key": [None if row % 3 else b"%d" % row],
                    "value": [None if row % 7 == 0 else b"value %d" % row],
                    "timestamp": [1_700_000_000_000 + row],
                    "headers": [[(b"a", b"1"), (b"a", None)] if row % 2 else []],
                }
                log.append(record)
        with kseg.Log.open(path) as log:
            expected.append(
                [
                    (
                        one.timestamp,
                        one.key,
                        one.value,
                        tuple((k.decode(), v) for k, v in one.headers),
                    )
                    for columns in log.read(offset=(100, 200))
                    for one in columns.records()
                ]
            )
    with needed():
        broker = Broker(tmp_path)
    with broker:
        broker.start()
        broker.create("orders", 2)
        text = program.replace("localhost:9092", broker.bootstrap)
        environment = os.environ | {"PYTHONPATH": str(tree.ROOT)}
        subprocess.run([sys.executable, "-c", text], cwd=tmp_path, env=environment, check=True)
        for number in (0, 1):
            rows = broker.consume("orders", number)
            assert [row[1:] for row in rows] == expected[number]
