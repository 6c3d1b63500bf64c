from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from kseg.cli.demo import check_java, summarise_locally
from kseg.errors import KsegError, MissingExtraError
from kseg.extras import check_pyspark
from tests.builders import batch, record, write_segment


def java(directory: Path, script: str) -> Path:
    """A `java` that only knows how to answer for its version."""
    path = directory / "bin" / "java"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("""echo 'java version "1.8.0_401"' >&2""", "is 8"),
        ("""echo 'openjdk version "11.0.2"' >&2""", "is 11"),
        ("exit 3", "does not run"),
        ("echo 'no such thing' >&2", "does not run"),
    ],
)
def test_a_java_that_will_not_do_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, reason: str
) -> None:
    java(tmp_path, script)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(KsegError, match=f"Java 17 or newer and .*{reason}.*JAVA_HOME$"):
        check_java()


def test_no_java_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KsegError, match="there is none: install it"):
        check_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(KsegError, match="does not run"):
        check_java()


def test_no_pyspark_is_one_line_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'kseg\[spark\]'"):
        check_pyspark()


@pytest.mark.parametrize("version", ["4.0.1", "3.5.6"])
def test_an_old_pyspark_is_one_line_with_the_command(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr("pyspark.__version__", version)
    with pytest.raises(MissingExtraError, match=f"pyspark {version} is too old, kseg needs 4.1"):
        check_pyspark()


def test_the_local_sums_are_those_of_the_records(tmp_path: Path) -> None:
    given = [
        record(b"four", key=b"k", timestamp=7),
        record(None, timestamp=-1),
        record(b"", timestamp=5),
    ]
    write_segment(tmp_path / "orders-0", 0, batch(given))
    found = summarise_locally(tmp_path)
    assert list(found.values()) == [3, 1, 4, 3, 5, 7]


def test_sums_of_nothing_have_no_times(tmp_path: Path) -> None:
    write_segment(tmp_path / "orders-0", 0)
    found = summarise_locally(tmp_path)
    assert list(found.values()) == [0, 0, 0, 0, None, None]
