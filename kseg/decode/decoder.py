"""The interface of every format of typed values: a decoder with one Arrow type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


class Decoder(Protocol):
    """Decodes payloads of one schema into values of one Arrow type."""

    @property
    def type(self) -> pa.DataType:
        """The type of every value; the schema alone decides it."""

    def decode(self, payloads: pa.BinaryArray | pa.LargeBinaryArray) -> tuple[pa.Array, Reasons]:
        """Decode payloads, which have no prefix.

        A damaged payload never raises. Memory is bounded by the bytes of the payloads.

        Args:
            payloads: n payloads; null stays null without a reason.

        Returns:
            n values of `type`, and a reason for each row whose payload does not decode; these
            values are null.
        """


#: Why rows are null, by row.
Reasons = dict[int, str]

__all__ = ["Decoder", "Reasons"]
