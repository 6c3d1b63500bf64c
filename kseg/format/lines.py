"""JSON as columns, or in them: the kernel that parses lines, and what it calls the columns."""

from __future__ import annotations

from kseg._kernels.lines import (
    BASE64,
    BINARY_COLUMNS,
    DEPTH_MAX,
    HEADER_BYTES_MIN,
    HEADER_NAME,
    HEADER_VALUE,
    HEX,
    KEY,
    UTF8,
    VALUE,
    VALUE_DEPTH_MAX,
    LinesEnd,
    mark_not_json,
    parse_lines,
)

__all__ = [
    "BASE64",
    "BINARY_COLUMNS",
    "DEPTH_MAX",
    "HEADER_BYTES_MIN",
    "HEADER_NAME",
    "HEADER_VALUE",
    "HEX",
    "KEY",
    "UTF8",
    "VALUE",
    "VALUE_DEPTH_MAX",
    "LinesEnd",
    "mark_not_json",
    "parse_lines",
]
