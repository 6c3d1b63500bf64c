"""The URLs of stores: their schemes, and the parts that they must not have."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

#: Other names of a scheme, as Hadoop and others have them.
SCHEMES: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "azure": "az"}


def check_url(url: str) -> None:
    """Refuse a URL that has credentials or a query.

    Raises:
        ValueError: it has; the message does not repeat them.
    """
    parts = urlsplit(url)
    is_container = SCHEMES.get(parts.scheme, parts.scheme) in ("abfs", "az")
    has_query = parts.scheme in ("http", "https") and bool(parts.query or parts.fragment)
    if has_query or ("@" in parts.netloc and not is_container):
        place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        raise ValueError(
            f"kseg: {place}: a URL has no user, password, query or fragment: credentials come "
            "from the environment, and a URL appears in messages"
        )


__all__ = ["SCHEMES", "check_url"]
