"""The configurations that Kafka knows, with their types, and which values may be shown.

A value may be a password. `shown` decides for every output: only values whose name is known, and
whose type is not PASSWORD, are shown. `config_types.json` has the names by type.

Source: the `ConfigDef` of Kafka 4.2.0's brokers, topics, groups, client metrics and quotas, and the
names that only 3.9.1 has; `DynamicBrokerConfig.ListenerConfigRegex`.
"""

from __future__ import annotations

import json
import pkgutil
import re
from collections.abc import Mapping
from functools import cache
from typing import Final

PASSWORD: Final = "PASSWORD"
#: In front of the name of a configuration of one listener.
_LISTENER: Final = re.compile(r"listener\.name\.[^.]+\.")


@cache
def config_types() -> Mapping[str, str]:
    """The type of each configuration, such as INT, by its name."""
    data = pkgutil.get_data("kseg.internal", "config_types.json")
    assert data is not None  # the package has it
    by_type: Mapping[str, str] = json.loads(data)
    return {name: kind for kind, names in by_type.items() for name in names.split()}


def shown(name: str, value: str, *, show_secrets: bool = False) -> str | None:
    """A configuration's value for output; None for a secret.

    Args:
        name: of the configuration.
        value: as the record has it.
        show_secrets: show every value.

    Example:
        >>> shown("retention.ms", "5"), shown("listener.name.x.ssl.key.password", "pw")
        ('5', None)
        >>> shown("no.known.name", "perhaps a password") is None
        True
    """
    kind = config_types().get(_LISTENER.sub("", name, count=1), PASSWORD)
    return value if show_secrets or kind != PASSWORD else None


__all__ = ["config_types", "shown"]
