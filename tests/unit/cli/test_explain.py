"""`kseg explain`: its page."""

from __future__ import annotations

from pathlib import Path

from tests.unit.analysis.test_explain import NOW_MS, WEEK, write_log
from tests.unit.cli.conftest import Kseg

A_WEEK = ("--now", NOW_MS, "--config", f"retention.ms={WEEK['retention.ms']}")


def test_every_segment_has_a_line_where_it_is_asked_for(kseg: Kseg, tmp_path: Path) -> None:
    write_log(tmp_path / "data")
    ran = kseg("explain", tmp_path / "data", *A_WEEK, "--segments")
    for base in range(4):
        assert f"{base:020d}.log: " in ran.text
    assert "goes at 2025-10-15T08:53:20.001Z" in ran.text


def test_what_no_setting_is_known_of_is_named_and_left_out(kseg: Kseg, tmp_path: Path) -> None:
    write_log(tmp_path / "data", name="clicks")
    write_log(tmp_path / "data")
    (tmp_path / "data" / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    ran = kseg("explain", tmp_path / "data", "--now", NOW_MS, "--what-if", "retention.ms=1")
    assert "policy-unknown: 2 partitions, such as " in ran.text
    assert "--config clicks:retention.ms=MS" in ran.text
    assert "left out, unless a setting names the topic: 2 partitions" in ran.text


def test_a_setting_that_is_not_understood_is_named(kseg: Kseg, tmp_path: Path) -> None:
    write_log(tmp_path / "data")
    properties = tmp_path / "server.properties"
    properties.write_text("log.retention.ms=604800000.0\n")
    ran = kseg("explain", tmp_path / "data", "--broker-config", properties)
    assert "invalid-setting: 1 partition, such as" in ran.text
    assert "retention.ms has a value that Kafka refuses" in ran.text
