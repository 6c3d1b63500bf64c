"""The kernel that inflates."""

from __future__ import annotations

from typing import Any

from kseg._kernels import inflate


def test_kernels_find_the_function_and_what_frees_its_memory() -> None:
    module: Any = inflate
    assert {"inflate_records", "drop_scratch"} == set(module.__pyx_capi__)
