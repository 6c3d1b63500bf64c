"""Logs that properties write are verified."""

from tests.verified import closes, verified  # noqa: F401
