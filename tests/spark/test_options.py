from __future__ import annotations

import pytest

from kseg.format.values import Kind
from kseg.spark.options import TopicChoice, parse_options, table_comment, with_comments


def parse(**options: str):
    return parse_options({"path": "data", **options})


def test_without_options_everything_is_read() -> None:
    options = parse()
    assert options.paths == ("data",)
    assert options.start_of("orders", 0) is None
    assert options.on_corrupt == "raise"
    assert options.verify_crc
    assert options.wants("orders", 5)
    assert options.wants(None, None)


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("topic", "orders", "topics", TopicChoice("topic", "orders", names=("orders",))),
        ("mode", "Batches", "mode", "batches"),
        ("onCorrupt", "permissive", "on_corrupt", "permissive"),
        ("startingOffsets", "earliest", "starting_offsets", {}),
        ("startingOffsets", " 12 ", "starting_offsets", {None: 12}),
        ("endingOffsets", "Latest", "ending_offsets", {}),
        (
            "endingOffsets",
            '{"orders": {"0": 5, "1": -1}}',
            "ending_offsets",
            {("orders", 0): 5, ("orders", 1): None},
        ),
        ("startingTimestamp", "1700000000000", "starting_timestamp", 1_700_000_000_000),
        ("startingTimestamp", "1970-01-01T00:00:01Z", "starting_timestamp", 1000),
        ("startingTimestamp", "1970-01-01", "starting_timestamp", 0),
        ("endingTimestamp", "1970-01-01T01:00:00+01:00", "ending_timestamp", 0),
        ("endingTimestamp", "1970-01-01T00:00:00.000001", "ending_timestamp", 1),
        ("columns", "offset, value", "columns", ("offset", "value")),
        ("includeHeaders", "TRUE", "include_headers", True),
        ("decodeKey", "Integer", "decode_key", Kind.INT32),
        ("decodeValue", "json", "decode_value", Kind.JSON),
        ("verifyCrc", "false", "verify_crc", False),
        ("onCorrupt", "skip", "on_corrupt", "skip"),
        ("index", "ignore", "index", "ignore"),
        ("isolation", "read_committed", "isolation", "read_committed"),
        ("targetPartitionBytes", "64m", "target_partition_bytes", 64 << 20),
        ("targetPartitionBytes", "1 GiB", "target_partition_bytes", 1 << 30),
        ("targetPartitionBytes", "77", "target_partition_bytes", 77),
        ("maxBatchRows", "1", "max_batch_rows", 1),
    ],
)
def test_each_option_is_parsed(name: str, text: str, field: str, value: object) -> None:
    assert getattr(parse(**{name: text}), field) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("topic", " "),
        ("partitions", "1-"),
        ("partitions", "5-3"),
        ("partitions", "2147483648"),
        ("endingOffsets", "earliest"),
        ("startingOffsets", "-1"),
        ("maxOffsetsPerTrigger", "0"),
        ("failOnDataLoss", "maybe"),
        ("startingOffsets", "9223372036854775808"),
        ("startingOffsets", "{"),
        ("startingOffsets", '{"orders": 5}'),
        ("startingOffsets", '{"orders": {"0": true}}'),
        ("endingOffsets", '{"orders": {"0": -2}}'),
        ("endingOffsets", '{"orders": {"x": 2}}'),
        ("startingTimestamp", "yesterday"),
        ("columns", "key,,value"),
        ("columns", "key,Key"),
        ("includeHeaders", "yes"),
        ("decodeValue", "xml"),
        ("onCorrupt", "ignore"),
        ("mode", "rows"),
        ("subscribe", "a,,b"),
        ("subscribePattern", "a("),
        ("assign", "[]"),
        ("assign", "{}"),
        ("assign", '{"orders": 1}'),
        ("assign", '{"orders": [true]}'),
        ("assign", '{"orders": [-1]}'),
        ("assign", "[" * 100_000),
        ("index", "maybe"),
        ("targetPartitionBytes", "0"),
        ("targetPartitionBytes", "many"),
        ("targetPartitionBytes", "99999999999999999999999"),
        ("maxBatchRows", "0"),
        ("maxBatchRows", "2000000"),
    ],
)
def test_a_value_out_of_its_domain_is_refused_by_option_and_value(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=f"option {name}=") as caught:
        parse(**{name: text})
    assert "\n" not in str(caught.value)


def test_an_unknown_option_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(ValueError, match=r"'startingoffset'; did you mean startingOffsets\?"):
        parse(startingOffset="3")


def test_an_option_like_no_other_is_refused_with_the_list() -> None:
    with pytest.raises(ValueError, match="unknown option 'zzz'; known: topic, subscribe,"):
        parse(zzz="3")


def test_settings_for_a_broker_are_ignored_with_a_warning() -> None:
    given = {"path": "data", "kafka.bootstrap.servers": "a:1", "Kafka.group.id": "g"}
    with pytest.warns(UserWarning, match=r"ignored kafka\.bootstrap\.servers, kafka\.group\.id"):
        assert parse_options(given) == parse()


@pytest.mark.parametrize(
    "given", [{}, {"path": ""}, {"paths": "[]"}, {"paths": "[1]"}, {"paths": "["}]
)
def test_no_path_is_one_clear_line(given: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="path"):
        parse_options(given)


def test_partition_ranges_include_both_ends_and_no_unnamed_partition() -> None:
    chosen = parse(partitions="0, 3-5")
    assert [number for number in range(8) if chosen.wants("t", number)] == [0, 3, 4, 5]
    assert not chosen.wants("t", None)


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("topic", "order*", {"orders-0", "orders-1", "orders.eu-0"}),
        ("topic", "orders", {"orders-0", "orders-1"}),
        ("subscribe", "orders, payments", {"orders-0", "orders-1", "payments-0"}),
        ("subscribePattern", r"orders(\.eu)?", {"orders-0", "orders-1", "orders.eu-0"}),
        ("subscribePattern", "order", set()),
        ("assign", '{"orders": [1], "payments": [0, 9]}', {"orders-1", "payments-0"}),
    ],
)
def test_topics_are_chosen_in_the_ways_of_sparks_kafka_source(
    name: str, text: str, wanted: set[str]
) -> None:
    options = parse(**{name: text})
    there = [("orders", 0), ("orders", 1), ("orders.eu", 0), ("payments", 0), (None, None)]
    assert {f"{topic}-{number}" for topic, number in there if options.wants(topic, number)} == (
        wanted
    )


def test_two_ways_to_choose_topics_are_refused() -> None:
    with pytest.raises(ValueError, match="one of topic, subscribe, subscribePattern, assign at"):
        parse(topic="a", assign='{"a": [0]}')


@pytest.mark.parametrize("text", ["latest", '{"orders": {"0": 4, "1": -1}}'])
def test_only_a_stream_starts_behind_the_last_record(text: str) -> None:
    options = parse(startingOffsets=text)
    with pytest.raises(ValueError, match="startingOffsets: latest has no meaning at this end"):
        options.check_batch()
    assert options.start_of("orders", 1) == -1


TABLE = {
    "owner": "ann",
    "provider": "kseg",
    "location": "file:/data",
    "path": "file:/data",
    "option.path": "/data",
    "topic": "orders",
    "option.topic": "orders",
    "x": "a property of the table",
}


def test_of_a_table_the_options_count_and_the_location_not_the_properties() -> None:
    options = parse_options(TABLE)
    assert (options.paths, options.topics.names) == (("file:/data",), ("orders",))
    assert parse_options({"provider": "KSEG", "location": "d"}).paths == ("d",)
    with pytest.raises(ValueError, match="'topik'; did you mean topic"):
        parse_options({**TABLE, "option.topik": "orders"})
    with pytest.raises(ValueError, match="unknown option 'owner'"):
        parse(owner="ann")


def test_the_options_of_a_table_come_back_from_the_comment_of_a_column() -> None:
    table = {**TABLE, "path": "file:/a 'b'\\&c=%20", "option.columns": "key, value"}
    comment = table_comment(table)
    assert comment is not None
    assert not set("'\\ ") & set(comment)
    assert parse_options(with_comments({}, [None, "the key", comment])) == parse_options(table)
    assert with_comments({"Topic": "t"}, [comment])["topic"] == "t"
    assert with_comments({"path": "other"}, [comment]) == {"path": "other"}
    assert with_comments({"topic": "t"}, [None]) == {"topic": "t"}
    assert table_comment({"path": "data"}) is None
