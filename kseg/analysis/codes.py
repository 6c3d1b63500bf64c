"""The codes of verify's findings; they are those of the log."""

from __future__ import annotations

from kseg.log.recovery import CODES, Code, Severity

__all__ = ["CODES", "Code", "Severity"]
