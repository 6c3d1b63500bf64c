"""Whether the pyspark that is installed is one with which the source works."""

from __future__ import annotations

import re
from typing import Final

from kseg.errors import MissingExtraError
from kseg.extras import require

#: The first release that hands filters to Python sources.
_SPARK_MIN: Final = (4, 1)


def check_pyspark() -> None:
    """Make sure that a pyspark is there with which the source works.

    Raises:
        MissingExtraError: there is none, or it is too old; the message has the command to run.
    """
    version: str = require("pyspark", extra="spark").__version__
    require("pyarrow", extra="spark")
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if numbers < _SPARK_MIN:
        least = ".".join(map(str, _SPARK_MIN))
        raise MissingExtraError(
            f"pyspark {version} is too old, kseg needs {least}: pip install -U 'kseg[spark]'"
        )
