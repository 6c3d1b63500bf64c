"""What a `with` closes: the two methods that every open thing of files and logs would repeat."""

from __future__ import annotations

from typing import Self


class Closing:
    """A base, where the style has none else: eleven classes would each carry these lines."""

    __slots__ = ()

    def close(self) -> None:
        """Release what is held; a second call does nothing."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        """Answer the open thing itself."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Close."""
        self.close()
