"""Facts of Kafka's releases: metadata versions, and settings with their types and values.

`releases.json` has the facts of each release; `tools/kafka_release` makes it.

A value may be a password. `shown` decides for every output: only values whose name is known, and
whose type is not PASSWORD, are shown.

Source: the `ConfigDef` of Kafka's brokers, topics, groups, client metrics and quotas, 3.9.1 to
4.4.0; `ConfigDef.parseType`; `DynamicBrokerConfig.ListenerConfigRegex`.
"""

from __future__ import annotations

import json
import pkgutil
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final, Literal

from kseg.constants import NEWEST_RELEASE

#: The releases whose starts and loads `kseg doctor` follows step by step.
FOLLOWED: Final = (NEWEST_RELEASE, "4.2")
#: The releases that were compared; brokers of other releases cut logs as these do.
COMPARED: Final = (
    NEWEST_RELEASE,
    "4.3",
    "4.2",
    "3.9",
    "2.8",
    "1.1",
    "0.11",
    "0.10.2",
    "0.10.0",
    "0.9.0",
    "0.8.2",
    "0.8.0",
)
#: The release whose lines `kseg dump --kafka` prints where no other is named: an upgrade of kseg
#: changes none.
DUMP_RELEASE: Final = "4.2"
#: The releases whose dump tools have lines of their own.
DUMP_RELEASES: Final = (
    "0.8",
    "0.9",
    "0.10.0",
    "0.10",
    "0.11",
    "1.0",
    "1.1",
    "2.8",
    DUMP_RELEASE,
    NEWEST_RELEASE,
)

PASSWORD: Final = "PASSWORD"
#: Before the name of a configuration of one listener.
_LISTENER: Final = re.compile(r"listener\.name\.[^.]+\.")
#: Type of a setting -> the bits of its numbers.
_BITS: Final = {"SHORT": 16, "INT": 32, "LONG": 64}
#: Java's hexadecimal numbers are left out.
_REAL: Final = re.compile(
    r"([+-]?(?:NaN|Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?))[fFdD]?", re.ASCII
)
_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)

_CLEANER_BYTES: Final = "log.cleaner.dedupe.buffer.size"
_MEBIBYTE: Final = 1 << 20

Scope = Literal["topic", "broker"]


@cache
def _data() -> Mapping[str, Any]:
    data = pkgutil.get_data("kseg.internal", "releases.json")
    assert data is not None  # the package has it
    return dict(json.loads(data))


@cache
def metadata_versions() -> Mapping[str, tuple[int, int]]:
    """The lowest and highest metadata version that each release knows, oldest release first."""
    versions = sorted(_data()["metadata_versions"].items(), key=lambda item: _version(item[0]))
    return {release: (least, largest) for release, (least, largest, _name) in versions}


def release_of_level(level: int) -> str | None:
    """The first release that knows a metadata version; None if no known release does.

    Example:
        >>> release_of_level(33)
        '4.4'
    """
    versions = metadata_versions().items()
    return next((release for release, (_, largest) in versions if level <= largest), None)


@cache
def definitions(scope: Scope, release: str) -> Mapping[str, str]:
    """The type and the check of each setting that a release knows, keyed by name.

    Args:
        scope: "topic" or "broker".
        release: a release of Kafka, such as "4.4" or "4.4.0"; empty for one before 3.9.
    """
    newest = _version(release)
    settings: dict[str, str | None] = {}
    for changed_in, changes in sorted(_data()[scope].items(), key=lambda item: _version(item[0])):
        if _version(changed_in) <= newest:
            settings |= changes
    return {name: definition for name, definition in settings.items() if definition is not None}


def _version(release: str) -> tuple[int, ...]:
    return tuple(int(number) for number in release.split(".")[:2])


@cache
def config_types() -> Mapping[str, str]:
    """The type of each configuration of any release, such as INT, keyed by its name."""
    types: dict[str, str] = dict(_data()["other"])
    for scope in ("topic", "broker"):
        for changes in _data()[scope].values():
            stated = {name: text.partition(" ")[0] for name, text in changes.items() if text}
            types |= {name: kind for name, kind in stated.items() if types.get(name) != PASSWORD}
    return types


def allowed_values(scope: Scope, name: str, text: str, release: str) -> str:
    """A phrase with the values that a setting may have, if Kafka refuses this one.

    Args:
        scope: "topic" or "broker".
        name: the name of the setting.
        text: its value.
        release: the release of Kafka.

    Returns:
        An empty text if the release takes the value, or does not know the setting.

    Example:
        >>> allowed_values("topic", "segment.bytes", "1000", "4.4")
        'a whole number, at least 1048576'
        >>> allowed_values("topic", "segment.bytes", "1000", "3.9")
        ''
    """
    definition = definitions(scope, release).get(name, "")
    kind, _, check = definition.partition(" ")
    value = text.strip()
    if kind in _BITS:
        is_number = _WHOLE_NUMBER.fullmatch(value) is not None
        limit = 1 << (_BITS[kind] - 1)
        is_allowed = is_number and -limit <= int(value) < limit and _in_ranges(int(value), check)
        ranges = "" if is_number and abs(int(value)) >= limit else _ranges_in_words(check)
        return "" if is_allowed else f"a whole number{ranges or f', below {limit}'}"
    if kind == "BOOLEAN":
        return "" if value.lower() in ("true", "false") else "true or false"
    if kind == "DOUBLE":
        number = _real(value)
        is_allowed = number is not None and _in_ranges(number, check)
        return "" if is_allowed else f"a number{_ranges_in_words(check)}"
    if not check or (kind == "LIST" and not value):
        return ""
    words = re.split(r"\s*,\s*", value) if kind == "LIST" else [value]
    if kind == "STRING" or set(words) <= set(check.split("|")):
        return "" if value in check.split("|") or kind == "LIST" else check.replace("|", ", ")
    return f"a list of {check.replace('|', ', ')}"


def refused_settings(scope: Scope, settings: Mapping[str, str], release: str) -> dict[str, str]:
    """The settings that Kafka refuses, each with a phrase of the values that it may have.

    Args:
        scope: "topic" or "broker".
        settings: name -> value; names that the release does not know are left out.
        release: the release of Kafka.

    Source: `AbstractConfig`, `KafkaConfig.validateValues`, without its rules about listeners,
    quorums and security.
    """
    known_settings = definitions(scope, release)
    settings = {name: text for name, text in settings.items() if name in known_settings}
    allowed = {name: allowed_values(scope, name, text, release) for name, text in settings.items()}
    refused = {name: words for name, words in allowed.items() if words}
    if scope == "topic" or refused:
        return refused
    for greater, greater_default, smaller, smaller_default in _data()["ordered"]:
        limit = int(settings.get(greater, greater_default))
        if {greater, smaller} <= known_settings.keys() and (
            int(settings.get(smaller, smaller_default)) > limit
        ):
            name = smaller if smaller in settings else greater
            refused[name] = f"values for which {smaller} is at most {greater}"
    threads = int(settings.get("log.cleaner.threads", 1))
    if int(settings.get(_CLEANER_BYTES, 128 * _MEBIBYTE)) // max(threads, 1) <= _MEBIBYTE:
        refused[_CLEANER_BYTES] = f"more than {_MEBIBYTE} for each of log.cleaner.threads"
    return refused


def _real(text: str) -> float | None:
    """A number as Java's `Double.parseDouble` reads it; None if that refuses the text."""
    suffixed = _REAL.fullmatch(text)
    return float(suffixed[1]) if suffixed else None


def _ranges(check: str) -> Iterator[list[str]]:
    """The bounds of each range of a check; an empty bound is open."""
    return (part.split("..") for part in check.split(",") if part)


def _in_ranges(number: float, check: str) -> bool:
    """Whether a number is in one of the ranges; Kafka accepts NaN everywhere."""
    return not check or any(
        not (least and number < float(least)) and not (most and number > float(most))
        for least, most in _ranges(check)
    )


def _ranges_in_words(check: str) -> str:
    """A phrase with the releases that have a check; empty for all of them."""
    words = []
    for least, most in _ranges(check):
        if least == most:
            words.append(least)
        elif least and most:
            words.append(f"from {least} to {most}")
        else:
            words.append(f"at least {least}" if least else f"at most {most}")
    return ", " + " or ".join(words) if words else ""


def is_known(name: str) -> bool:
    """Whether any release has a configuration of this name, perhaps for one listener."""
    return _LISTENER.sub("", name, count=1) in config_types()


def shown(name: str, value: str, *, show_secrets: bool = False) -> str | None:
    """A configuration's value for output; None if it is a secret.

    Args:
        name: the name of the configuration.
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
