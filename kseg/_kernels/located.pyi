"""The Python interface of records where they lie; see `located.pyx`."""

from typing import Any, final

from typing_extensions import disjoint_base

GROWTH_BYTES: int
SPARE_BYTES: int
RECORD_BYTES_MIN: int

@final
class Located: ...

@disjoint_base
class Keep: ...

def rewrite(
    keep: Keep,
    located: Located,
    data: Any,
    rows: Any,
    asked: Any,
    base: int,
    at: int,
    horizon_ms: int,
    out: Any,
    fates: Any,
) -> tuple[int, int]: ...
