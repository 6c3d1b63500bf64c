"""The rules by which a broker takes batches: validation, offsets, conversion."""

from __future__ import annotations

from kseg._door import door

__all__, __getattr__ = door(__name__, __file__)
