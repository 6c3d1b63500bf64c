"""Keys by their hashes: a column hashed, different ones counted, sums by key."""

from __future__ import annotations

from kseg._kernels.keymap import KeyTable, hash_values, note_distinct

__all__ = ["KeyTable", "hash_values", "note_distinct"]
