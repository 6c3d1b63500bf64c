"""The base of classes that a `with` closes."""

from __future__ import annotations

from typing import Self


class Closing:
    """A base class, which the style otherwise avoids: eleven classes would repeat these lines."""

    __slots__ = ()

    def close(self) -> None:
        """Release everything; a second call does nothing."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        """Return the object itself."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Close."""
        self.close()
