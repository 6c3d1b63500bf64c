"""Down-conversion for old consumers: what Kafka's RecordsUtil makes of each vector."""

from __future__ import annotations

from typing import Any

import pytest

from kseg.errors import UnsupportedFormatError
from kseg.legacy.old_brokers import down_convert
from tests.conformance.outputs import same_output

REFUSALS = {"UnsupportedCompressionTypeException": UnsupportedFormatError}


def test_the_bytes_and_the_costs_are_kafka_s(down_convert_vector: dict[str, Any]) -> None:
    data, params = bytes.fromhex(down_convert_vector["hex"]), down_convert_vector["params"]
    where = {"to_magic": params["to_magic"], "first_offset": params["first_offset"]}
    if "error" in down_convert_vector:
        with pytest.raises(REFUSALS[down_convert_vector["error"]["error"]]):
            down_convert(data, **where)
        return
    expect = down_convert_vector["expect"]
    converted = down_convert(data, **where)
    same_output(converted.data, expect)
    assert converted.stats.records_converted == expect["num_records_converted"]
    assert converted.stats.temporary_bytes == expect["temporary_memory_bytes"]


def test_a_file_without_anything_to_convert_comes_back_as_it_is(
    down_convert_vector: dict[str, Any],
) -> None:
    if "error" in down_convert_vector:
        pytest.skip("refused")
    data, params = bytes.fromhex(down_convert_vector["hex"]), down_convert_vector["params"]
    torn = data + data[:17]
    answer = down_convert(
        torn, params["to_magic"], first_offset=params["first_offset"], as_file=True
    )
    if down_convert_vector["expect"]["num_records_converted"]:
        same_output(answer.data, down_convert_vector["expect"])
    else:
        assert answer.data == torn
        assert answer.stats.temporary_bytes == 0
