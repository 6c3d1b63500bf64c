"""`partition_for`: the partition that a producer sends a key to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal, overload

import numpy as np

from kseg._kernels.keymap import key_partitions
from kseg.constants import Int32s
from kseg.format.request import check_word
from kseg.format.values import BinaryColumn, TypedColumn, binary_column
from kseg.frames import has_arrow

Partitioner = Literal["murmur2", "crc32"]
PARTITIONERS: Final = ("murmur2", "crc32")
#: The partition of a key that its producer does not hash.
NO_PARTITION: Final = -1
_BYTES = (bytes, bytearray, memoryview)


@overload
def partition_for(
    key: bytes | str | None, partitions: int, partitioner: str = "murmur2"
) -> int | None: ...
@overload
def partition_for(key: Any, partitions: int, partitioner: str = "murmur2") -> Int32s: ...
def partition_for(key: Any, partitions: int, partitioner: str = "murmur2") -> int | Int32s | None:
    """Find the partition of a serialized key, or of each key of a column.

    Args:
        key: bytes, or text, which is encoded as UTF-8; None for a null key. Or many of them: a
            list, a column that kseg has read, or a column of Arrow, Polars or pandas.
        partitions: the number of partitions of the topic.
        partitioner: "murmur2" for the producers of Java, Streams, Connect, kafka-python, aiokafka
            and franz-go: `(murmur2(key) & 0x7fffffff) % partitions`. "crc32" for librdkafka and the
            clients built on it, if their `partitioner` is not set (`consistent_random`).

    Returns:
        The partition of one key. None for a null key, and with "crc32" for an empty key: producers
        send these to any partition. For a column int32[n], with -1 in place of None.

    Raises:
        TypeError: a key is neither bytes nor text. A serializer decides the bytes of a number.
        ValueError: `partitions` is less than 1, or the partitioner is unknown.

    Source: Kafka `BuiltInPartitioner.partitionForKey` and `Utils.murmur2`; librdkafka
    `rd_kafka_msg_partitioner_consistent_random`.
    """
    check_word("partitioner", partitioner, PARTITIONERS)
    if isinstance(partitions, bool) or not isinstance(partitions, (int, np.integer)):
        raise TypeError(f"partitions is a whole number, not {type(partitions).__name__}")
    if not 1 <= partitions < 2**31:
        raise ValueError(f"partitions is {partitions}, not 1 or more")
    single = key is None or isinstance(key, (str, *_BYTES))
    column = key_column([key] if single else key)
    found = np.empty(len(column), np.int32)
    key_partitions(column.data, column.offsets, int(partitions), partitioner == "crc32", found)
    if column.null_count:
        found[~column.is_valid()] = NO_PARTITION
    if not single:
        return found
    return None if found[0] == NO_PARTITION else int(found[0])


def key_column(keys: Any) -> BinaryColumn:
    """Keys as a column of their bytes.

    Args:
        keys: a list, a column that kseg has read, or a column of Arrow, Polars or pandas.

    Raises:
        TypeError: a key is neither bytes, text nor None.
    """
    if isinstance(keys, TypedColumn) and isinstance(keys.values, BinaryColumn):
        return keys.values
    if isinstance(keys, BinaryColumn):
        return keys
    if has_arrow(keys):
        from kseg.arrow import binary_column_of

        return binary_column_of(keys, "key")
    if not isinstance(keys, Iterable):
        raise TypeError(_refusal(keys))
    return binary_column([_key_bytes(key) for key in keys])


def _key_bytes(key: Any) -> bytes | None:
    if key is None or type(key) is bytes:
        return key
    if isinstance(key, str):
        return key.encode()
    if isinstance(key, _BYTES):
        return bytes(key)
    raise TypeError(_refusal(key))


def _refusal(key: object) -> str:
    return (
        f"a key is bytes, text or None, not {type(key).__name__}: encode it as the producers'"
        " serializer does, such as (42).to_bytes(4, 'big') for an IntegerSerializer"
    )
