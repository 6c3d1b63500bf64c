"""The reports and plans that kseg's functions return, by their classes.

Each name is loaded when it is first used.
"""

from __future__ import annotations

from kseg._door import door

__all__, __getattr__ = door(__name__, __file__)
