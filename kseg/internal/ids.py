"""Ids as Kafka prints them: 16 bytes in URL-safe base64 without padding."""

from __future__ import annotations

import base64
from uuid import UUID


def id_text(uuid: UUID) -> str:
    """An id as text of 22 characters.

    >>> id_text(UUID(int=1))
    'AAAAAAAAAAAAAAAAAAAAAQ'
    """
    return base64.urlsafe_b64encode(uuid.bytes).decode().rstrip("=")


def id_of(text: str) -> UUID:
    """Parse an id.

    Raises:
        ValueError: it is not 16 bytes in base64.
    """
    return UUID(bytes=base64.urlsafe_b64decode(text + "=="))
