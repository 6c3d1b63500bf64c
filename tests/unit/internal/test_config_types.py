"""Which values of configurations an output may have: those of known names that are no passwords."""

from __future__ import annotations

import pytest

from kseg.internal.config_types import config_types, shown


@pytest.mark.parametrize(
    ("name", "is_shown"),
    [
        ("retention.ms", True),
        ("leader.replication.throttled.replicas", True),
        ("follower.replication.throttled.rate", True),
        ("share.record.lock.duration.ms", True),
        ("metrics", True),
        ("message.format.version", True),  # of 3.9 alone
        ("ssl.keystore.location", True),
        ("listener.name.internal.ssl.keystore.location", True),
        ("ssl.key.password", False),
        ("listener.name.internal.ssl.key.password", False),
        ("sasl.jaas.config", False),
        ("listener.name.internal.scram-sha-256.sasl.jaas.config", False),
        ("listener.name.retention.ms", False),
        ("sasl.oauthbearer.client.credentials.client.secret", False),
        ("my.plugin.url", False),
        ("RETENTION.MS", False),
        ("", False),
    ],
)
def test_a_value_is_shown_if_its_name_is_known_and_no_password(
    name: str, *, is_shown: bool
) -> None:
    assert shown(name, "hunter2") == ("hunter2" if is_shown else None)
    assert shown(name, "hunter2", show_secrets=True) == "hunter2"


def test_each_name_has_one_type() -> None:
    types = config_types()
    assert len(types) > 400
    assert set(types.values()) == {
        *("BOOLEAN", "CLASS", "DOUBLE", "INT", "LIST", "LONG", "PASSWORD", "SHORT", "STRING")
    }
    assert [name for name, kind in types.items() if kind == "PASSWORD" and "." not in name] == []
