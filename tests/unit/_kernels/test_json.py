"""The kernel for JSON: it follows nested values on a small stack."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest

from kseg._kernels.json import mark_not_json

NESTED = {
    "lists": b"[" * 512 + b"]" * 512,
    "objects": b'{"a":' * 512 + b"1" + b"}" * 512,
    "both": b'[{"a":' * 256 + b"0" + b"}]" * 256,
    "one too many": b"[" * 513 + b"]" * 513,
    "an end that is another's": b"[" * 511 + b"{" + b"]" * 512,
    "an end too few": b"[" * 512 + b"]" * 511,
    "an end too many": b"[" * 511 + b"]" * 512,
    "a comma without a value": b"[" * 511 + b"[1,]" + b"]" * 511,
    "a list behind an object": b'[{"a":{}},[{}],[],{"b":[1,{"c":[]}]} , 2]',
    "a name without a value": b'{"a":{"b"}}',
    "a value without a name": b"[{1}]",
}


@pytest.mark.parametrize("name", NESTED)
def test_nested_json_is_followed_on_a_small_stack(name: str) -> None:
    text, marks, before = NESTED[name], np.zeros(1, np.uint8), threading.stack_size()
    ends = np.array([0, len(text)], np.int32)
    threading.stack_size(48 << 10)
    try:
        thread = threading.Thread(target=mark_not_json, args=(ends, text, marks))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    try:
        json.loads(text)
        sound = name != "one too many"  # deeper than is followed
    except ValueError:
        sound = False
    assert marks[0] == (not sound)
