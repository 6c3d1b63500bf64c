"""Lets Spark find kseg by name: it looks into every top-level package called `pyspark_*`.

One that cannot be imported would take all other sources with it, so a kseg that is broken or not
built stays unknown instead; `import kseg` then says what is wrong.
"""

from __future__ import annotations

import contextlib

with contextlib.suppress(ImportError):
    from kseg.spark.source import KsegDataSource as DefaultSource

__all__ = ["DefaultSource"]
