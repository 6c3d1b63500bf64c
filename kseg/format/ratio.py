"""How well records compress, learnt from batches already written."""

from __future__ import annotations

import numpy as np

from kseg.constants import Compression

_STEP_UP = np.float32(0.05)
_STEP_DOWN = np.float32(0.005)


class RatioEstimator:
    """Compressed by uncompressed size to expect, for each topic and codec; 1.0 at first.

    The estimate rises at once to what is observed and falls slowly: a batch that turns out too
    large costs more than one with room left. Numbers are of single precision, as Kafka's.

    Example:
        >>> ratios = RatioEstimator()
        >>> ratios.observe("orders", Compression.ZSTD, 0.25) < 1.0
        True
        >>> ratios.estimate("clicks", Compression.ZSTD)
        1.0

    Source: Kafka CompressionRatioEstimator.
    """

    def __init__(self) -> None:
        """Know nothing."""
        self._ratios: dict[tuple[str, Compression], np.float32] = {}

    def estimate(self, topic: str, compression: Compression) -> float:
        """The ratio to expect.

        Args:
            topic: its name.
            compression: of the batch to come.

        Returns:
            Compressed by uncompressed size; 1.0 where nothing was observed.
        """
        return float(self._ratios.get((topic, compression), np.float32(1)))

    def observe(self, topic: str, compression: Compression, ratio: float) -> float:
        """Learn from a batch; the estimate moves towards its ratio.

        It goes up by 0.05 or as far as the ratio is, down by 0.005 and never below the ratio.

        Args:
            topic: its name.
            compression: of the batch.
            ratio: `compression_ratio` of the batch.

        Returns:
            The new estimate.
        """
        seen = np.float32(ratio)
        now = self._ratios.get((topic, compression), np.float32(1))
        if seen > now:
            now = max(now + _STEP_UP, seen)
        elif seen < now:
            now = max(now - _STEP_DOWN, seen)
        self._ratios[topic, compression] = now
        return float(now)

    def forget(self, topic: str) -> None:
        """Expect 1.0 of a topic again, whatever the codec.

        Args:
            topic: its name; one that is not known is no error.
        """
        self._ratios = {place: r for place, r in self._ratios.items() if place[0] != topic}
