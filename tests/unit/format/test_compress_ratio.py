"""RatioEstimator: what is expected of the next batch."""

from __future__ import annotations

import numpy as np
import pytest

from kseg.constants import Compression
from kseg.format.compress import RatioEstimator


def test_a_ratio_starts_at_1_and_is_kept_by_topic_and_codec() -> None:
    ratios = RatioEstimator()
    assert ratios.estimate("orders", Compression.GZIP) == 1.0
    ratios.observe("orders", Compression.GZIP, 0.5)
    assert ratios.estimate("orders", Compression.GZIP) < 1.0
    assert ratios.estimate("orders", Compression.ZSTD) == 1.0
    assert ratios.estimate("clicks", Compression.GZIP) == 1.0
    ratios.forget("orders")
    assert ratios.estimate("orders", Compression.GZIP) == 1.0


MOVES = {
    "far below: one step down": (1.0, 0.3, 0.995),
    "just below: down to it": (1.0, 0.998, 0.998),
    "equal: stays": (1.0, 1.0, 1.0),
    "just above: one step up": (1.0, 1.01, 1.05),
    "far above: up to it": (1.0, 1.8, 1.8),
}


@pytest.mark.parametrize(("start", "seen", "after"), MOVES.values(), ids=MOVES)
def test_a_ratio_falls_slowly_and_rises_at_once(start: float, seen: float, after: float) -> None:
    ratios = RatioEstimator()
    assert ratios.estimate("t", Compression.LZ4) == start
    assert ratios.observe("t", Compression.LZ4, seen) == pytest.approx(after, rel=1e-6)
    assert ratios.estimate("t", Compression.LZ4) == pytest.approx(after, rel=1e-6)


def test_a_ratio_is_kept_in_single_precision() -> None:
    ratios = RatioEstimator()
    assert ratios.observe("t", Compression.LZ4, 0.1) == float(np.float32(1) - np.float32(0.005))
