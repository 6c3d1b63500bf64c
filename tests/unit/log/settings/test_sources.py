"""Which data directories share the settings of a metadata log."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.log.settings import SettingSources, group_by_broker
from tests.unit.log.settings.made import Broker, setting, topic


def homes(root: Path, told: str) -> list[Path]:
    """Data directories by their brokers' numbers: `m` has a metadata log, `?` has no ids."""
    found = []
    for number, each in enumerate(told.split()):
        broker = Broker(root / f"d{number}", node_id=int(each[0]) if each[0] != "?" else 0)
        if each[0] == "?":
            (broker.path / "meta.properties").unlink()
        if each.endswith("m"):
            broker.says([topic("orders"), setting("retention.ms", str(number + 1))])
        found.append(broker.path)
    return found


@pytest.mark.parametrize(
    ("told", "groups"),
    [
        ("1 2 ?", [[0, 1, 2]]),
        ("1m 1 2 ?", [[0, 1, 2, 3]]),
        ("1m 1 2m 2 ?", [[0, 1], [2, 3], [4]]),
        ("1m 2m 1 ? ?m", [[0, 2], [1], [3], [4]]),
        ("1m 1m 1 2m 2", [[0], [1], [2], [3, 4]]),
    ],
)
def test_directories_share_the_log_of_their_broker(
    tmp_path: Path, told: str, groups: list[list[int]]
) -> None:
    found = homes(tmp_path, told)
    expected = [[found[number] for number in group] for group in groups]
    assert SettingSources().groups(found) == expected
    named = SettingSources(metadata_directory=found[0])
    assert named.groups(found) == [found]


def test_each_directory_has_the_settings_of_its_brokers_log(tmp_path: Path) -> None:
    found = homes(tmp_path, "1m 1 2m")
    for home in found:
        Broker(home, node_id=2 if home == found[2] else 1).has()
    known = SettingSources().by_home(found)
    values = [known[home].of(home / "orders-0").values["retention.ms"].value for home in found]
    assert values == ["1", "1", "3"]


def test_brokers_are_told_apart_by_cluster_and_node(tmp_path: Path) -> None:
    first, second = Broker(tmp_path / "a", node_id=1), Broker(tmp_path / "b", node_id=1)
    other = Broker(tmp_path / "c", cluster="c2", node_id=1)
    malformed = Broker(tmp_path / "d", node_id=1)
    (malformed.path / "meta.properties").write_text("version=9\n")
    places = [first.path, other.path, malformed.path, second.path, tmp_path / "none"]
    assert group_by_broker(places) == [
        [first.path, second.path],
        [other.path],
        [malformed.path],
        [tmp_path / "none"],
    ]


def test_what_is_no_setting_is_refused_before_a_partition_asks(tmp_path: Path) -> None:
    for sources in (
        SettingSources(config={"retention.ms": "soon"}),
        SettingSources(topic_config={"orders": {"colour": "red"}}),
    ):
        with pytest.raises(ValueError, match=r"soon|colour"):
            sources.check()
    assert SettingSources().groups([]) == []
