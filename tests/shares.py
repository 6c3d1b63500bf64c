"""How much of what could be gone through is: a share by default, all with KSEG_WHOLE=1."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

#: `make soak` takes all.
WHOLE: Final = os.environ.get("KSEG_WHOLE") == "1"


def share(of: Iterable[T], count: int, seed: str) -> Sequence[T]:
    """So many of these, the same for the same seed, in their order; or all."""
    every = list(of)
    if WHOLE or len(every) <= count:
        return every
    return [every[at] for at in sorted(random.Random(seed).sample(range(len(every)), count))]
