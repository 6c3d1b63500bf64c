from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.errors import CorruptIndexError, LimitExceededError
from kseg.files.metadata import (
    METADATA_BYTES_MAX,
    CleanShutdown,
    parse_properties,
    read_clean_shutdown,
    read_meta_properties,
    read_partition_metadata,
    remove_clean_shutdown,
    topic_id_in,
    write_clean_shutdown,
    write_partition_metadata,
)

ID = "AQIDBAUGBwgJCgsMDQ4PEA"


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode("latin-1"))
    return path


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version: 0",
        "version 0\ntopic_id: " + ID,
        "version:0\ntopic_id: " + ID,
        "version: x\ntopic_id: " + ID,
        "version: -1\ntopic_id: " + ID,
        "version: 0\ntopic_id: " + ID[:-1],
        "version: 0\ntopic_id: " + ID + "A",
        "version: 0\ntopic_id: " + "A" * 22,
        "version: 0\ntopic_id: " + "+" * 22,
        "version: 0\ntopic_id: a: b",
        b"\xff\xfe\n\xff",
    ],
)
def test_malformed_partition_metadata_is_refused(tmp_path: Path, text: str | bytes) -> None:
    with pytest.raises(CorruptIndexError) as caught:
        read_partition_metadata(write(tmp_path / "x", text))
    assert caught.value.path == str(tmp_path / "x")


@pytest.mark.parametrize(
    ("text", "node"), [("version=0\nbroker.id=3", 3), ("version=0", None), ("", None)]
)
def test_meta_properties_of_zookeeper_days_may_lack_ids(
    tmp_path: Path, text: str, node: int | None
) -> None:
    found = read_meta_properties(write(tmp_path / "x", text))
    assert (found.version, found.node_id, found.cluster_id) == (0, node, None)


@pytest.mark.parametrize(
    "text",
    [
        "version=2",
        "version=x",
        "version=",
        "version=1\nnode.id=1",
        "version=1\ncluster.id=c",
        "version=1\ncluster.id=c\nnode.id=one",
        "version=1\ncluster.id=c\nnode.id=99999999999",
        "version=0\nbroker.id=x",
        "directory.id=short",
        "a=\\u12",
    ],
)
def test_malformed_meta_properties_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(CorruptIndexError):
        read_meta_properties(write(tmp_path / "x", text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        (" \t\fa \t= \f b ", {"a": "b "}),
        ("a = = b", {"a": "= b"}),
        ("a", {"a": ""}),
        ("=b", {"": "b"}),
        ("# a=b\n! c=d\n\n   \n e=f", {"e": "f"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=b\r\nc=d\re=f", {"a": "b", "c": "d", "e": "f"}),
        ("a=b\\\n   c", {"a": "bc"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\n#c", {"a": "b#c"}),
        ("a=b\\", {"a": "b"}),
        ("a\\=b=c\\:d", {"a=b": "c:d"}),
        ("a\\ b=c", {"a b": "c"}),
        ("a=\\t\\n\\r\\f\\x\\\\", {"a": "\t\n\r\fx\\"}),
        ("a=\\u0041\\u00e9z", {"a": "A\u00e9z"}),
        ("# a\\\nb=c", {"b": "c"}),  # a comment does not go on
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@given(st.text(max_size=60))
def test_any_text_is_properties_or_a_value_error(text: str) -> None:
    try:
        parse_properties(text)
    except ValueError as error:
        assert "hex digits" in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    ("content", "epoch"),
    [
        (b"", None),
        (b'{"version":0,"brokerEpoch":10}', 10),
        (b'{"brokerEpoch":10,"more":[1]}', 10),
        (b'{"version":0}', None),
        (b'{"brokerEpoch":"10"}', None),
        (b'{"brokerEpoch":true}', None),
        (b'{"brokerEpoch":1e400}', None),
        (b'{"brokerEpoch":99999999999999999999}', None),
        (b'{"brokerEpoch":' + b"9" * 9999 + b"}", None),
        (b"[10]", None),
        (b"nonsense", None),
        (b"\xff\xfe\x00", None),
        (b"[" * 100_000, None),
    ],
)
def test_a_mark_counts_whatever_it_holds(tmp_path: Path, content: bytes, epoch: int | None) -> None:
    write(tmp_path / ".kafka_cleanshutdown", content)
    assert read_clean_shutdown(tmp_path) == CleanShutdown(epoch)


def test_a_file_that_is_too_long_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "partition.metadata"
    with path.open("wb") as file:
        file.truncate(METADATA_BYTES_MAX + 1)
    for read in (read_partition_metadata, read_meta_properties):
        with pytest.raises(LimitExceededError):
            read(path)
    assert topic_id_in(tmp_path) is None


# Writing


def test_nobodys_id_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no topic has"):
        write_partition_metadata(tmp_path / "partition.metadata", UUID(int=0))
    assert not list(tmp_path.iterdir())


def test_chk_05_a_mark_is_taken_away_once(tmp_path: Path) -> None:
    write_clean_shutdown(tmp_path)
    remove_clean_shutdown(tmp_path)
    assert read_clean_shutdown(tmp_path) is None
    remove_clean_shutdown(tmp_path)
