"""The names of the internal topics, which are known without any schema."""

from __future__ import annotations

from enum import StrEnum


class InternalTopic(StrEnum):
    """The topics whose records are known."""

    OFFSETS = "__consumer_offsets"
    TRANSACTIONS = "__transaction_state"
    SHARE = "__share_group_state"
    METADATA = "__cluster_metadata"
    REMOTE = "__remote_log_metadata"
