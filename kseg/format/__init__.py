"""Bytes to values and back, without a disk: every function takes a buffer and returns a value."""
