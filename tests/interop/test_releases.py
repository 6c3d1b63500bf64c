"""The data of Kafka's releases is what the jars of a release say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kseg.constants import NEWEST_RELEASE
from kseg.internal import releases
from tests.internal_schemas import SCHEMAS
from tests.interop.kafka import RELEASE, needed, prepare
from tools.kafka_release import make, schemas


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> make.Release:
    with needed():
        prepare(RELEASE)  # says what is missing
    return make.read_release(RELEASE, tmp_path_factory.mktemp("release") / "jars")


def test_the_data_ends_with_the_newest_release() -> None:
    assert list(releases.metadata_versions())[-1] == NEWEST_RELEASE


def test_settings_and_metadata_versions_are_those_of_the_jars(release: make.Release) -> None:
    name = ".".join(RELEASE.split(".")[:2])
    for scope in ("topic", "broker"):
        assert releases.definitions(scope, name) == release.settings[scope]
    assert releases.metadata_versions()[name] == release.metadata_versions[:2]
    groups = release.settings["group"].keys()
    assert {setting for setting in groups if not releases.is_known(setting)} == set()


def test_records_have_the_layouts_of_the_jars(release: make.Release) -> None:
    table = json.loads(json.dumps(SCHEMAS))
    made = schemas.updated(table, release.messages, RELEASE)
    for name, layouts in made["messages"].items():
        for version, layout in layouts.items():
            ours = SCHEMAS["messages"][name][version]
            assert _without_later_tags(ours, layout) == layout, (name, version)


def _without_later_tags(ours: Any, theirs: Any) -> Any:
    """A layout without the tagged fields that an older release lacks."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return {key: _without_later_tags(value, theirs.get(key)) for key, value in ours.items()}
    if isinstance(ours, list) and isinstance(theirs, list) and ours and isinstance(ours[0], dict):
        there = {field["name"]: field for field in theirs}
        return [
            _without_later_tags(field, there[field["name"]])
            for field in ours
            if field["name"] in there or "tag" not in field
        ]
    return ours
