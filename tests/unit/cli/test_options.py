"""Ranges, times, keys and selections as people type them."""

from __future__ import annotations

import click
import pytest

from kseg.cli.main import cli
from kseg.cli.options import CommandSettings, parse_setting
from kseg.cli.paths import config_of
from kseg.cli.verbs.spark import spark
from kseg.files.selection import Selection
from kseg.records.query import (
    parse_key,
    parse_offset_range,
    parse_partitions,
    parse_time,
    parse_time_range,
)

REASON = r"range|64-bit integer|ISO 8601|is not (hex|base64)"

OFFSETS = {
    "3..9": (3, 9),
    "3..": (3, None),
    "..9": (None, 9),
    "..": (None, None),
    "7": (7, 8),
    "5..5": (5, 5),
    f"0..{2**63 - 1}": (0, 2**63 - 1),
}


@pytest.mark.parametrize("text", OFFSETS)
def test_offset_ranges_are_half_open(text: str) -> None:
    assert parse_offset_range(text) == OFFSETS[text]


@pytest.mark.parametrize(
    "text", ["9..3", "a..b", "1..2..3", "1.5..2", "", f"0..{2**63}", "1 ..2", "5:8"]
)
def test_what_is_no_offset_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=REASON):
        parse_offset_range(text)


TIMES = {
    "1760000000000": 1_760_000_000_000,
    "-5": -5,
    "2025-10-09T08:53:20Z": 1_760_000_000_000,
    "2025-10-09T08:53:20": 1_760_000_000_000,
    "2025-10-09T10:53:20.007+02:00": 1_760_000_000_007,
    "1970-01-01": 0,
    "1969-12-31T23:59:59.999": -1,
}


@pytest.mark.parametrize("text", TIMES)
def test_times_are_milliseconds_or_iso_8601_in_utc(text: str) -> None:
    assert parse_time(text) == TIMES[text]


def test_time_ranges_take_either_form_on_either_side() -> None:
    assert parse_time_range("1970-01-02..99999999") == (86_400_000, 99_999_999)
    assert parse_time_range("..1970-01-02") == (None, 86_400_000)


def test_partitions_are_numbers_and_inclusive_ranges() -> None:
    assert parse_partitions("0,3-5") == (range(1), range(3, 6))


def test_keys_may_be_given_as_text_hex_or_base64() -> None:
    assert parse_key("k:1") == b"k:1"
    assert parse_key("hex:00fF") == b"\x00\xff"
    assert parse_key("base64:AP8=") == b"\x00\xff"


def test_a_selection_is_of_globs_and_ranges() -> None:
    chosen = Selection(("order*", "x"), (range(1), range(4, 10)))
    assert chosen.takes("orders", 0)
    assert chosen.takes("x", 7)
    assert not chosen.takes("orders", 1)
    assert not chosen.takes("payments", 0)
    assert not chosen.takes(None, None)


def test_settings_make_a_configuration_and_the_last_of_a_name_counts() -> None:
    texts = ["segment.bytes=100", "cleanup.policy=", "segment.bytes=200"]
    config = config_of(parse_setting(text) for text in texts)
    assert (config.segment_bytes, config.cleanup_policy) == (200, frozenset())
    assert config_of(()).segment_bytes == 2**30


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("retention.ms=7d", "604800000"),
        ("orders:segment.ms=12h", "43200000"),
        ("retention.ms=-1", "-1"),
        ("retention.ms=soon", "soon"),
        ("retention.bytes=1GiB", "1073741824"),
        ("segment.bytes=64k", "65536"),
        ("segment.bytes=1.5", "1.5"),
        ("retention.bytes=7d", "7d"),
        ("cleanup.policy=delete", "delete"),
    ],
)
def test_times_and_sizes_of_settings_may_have_units(text: str, value: str) -> None:
    assert parse_setting(text).value == value


@pytest.mark.parametrize("text", ["", "segment.bytes", "=1"])
def test_what_is_no_setting_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="NAME=VALUE"):
        parse_setting(text)


@pytest.mark.parametrize("text", ["segment.byte=1", "segment.bytes=x", "segment.bytes=0"])
def test_settings_that_no_topic_has_are_usage_errors(text: str) -> None:
    with pytest.raises(click.UsageError, match=r"--config: .*segment[._]byte"):
        config_of([parse_setting(text)])


def test_a_given_time_stands_still_and_none_is_the_machines() -> None:
    assert CommandSettings(now_ms=5).clock() == 5
    assert CommandSettings().clock() > 1_760_000_000_000


def _twins(verb: str) -> tuple[click.Command, click.Command]:
    context = click.Context(cli)
    here = cli.get_command(context, verb)
    assert here is not None
    return here, spark.commands[verb]


@pytest.mark.parametrize("verb", ["verify", "stats", "export", "reindex"])
def test_an_option_of_a_verb_says_the_same_in_its_spark_twin(verb: str) -> None:
    here, there = (
        {
            opt: (param.help, param.type.name, param.default)
            for param in command.params
            if isinstance(param, click.Option)
            for opt in param.opts
        }
        for command in _twins(verb)
    )
    differing = {name for name in here.keys() & there if here[name] != there[name]}
    assert differing - {"-o", "--output", "--fields"} == set()
