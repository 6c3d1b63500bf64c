"""Rows of columns as JSON lines, CSV or text: the kernel that writes them, its codes."""

from __future__ import annotations

from kseg._kernels.text import (
    BARE,
    BASE64,
    BYTES,
    CSV,
    ENUM,
    EXACT,
    HEADERS,
    HEX,
    INT,
    JAVA,
    NESTED,
    RAW,
    TEXT,
    TIME,
    UTF8,
    BytesEnd,
    RowsEnd,
    count_not_utf8,
    encode_bytes,
    write_rows,
)

__all__ = [
    "BARE",
    "BASE64",
    "BYTES",
    "CSV",
    "ENUM",
    "EXACT",
    "HEADERS",
    "HEX",
    "INT",
    "JAVA",
    "NESTED",
    "RAW",
    "TEXT",
    "TIME",
    "UTF8",
    "BytesEnd",
    "RowsEnd",
    "count_not_utf8",
    "encode_bytes",
    "write_rows",
]
