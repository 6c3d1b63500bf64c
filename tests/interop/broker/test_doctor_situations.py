"""What the doctor says of damaged directories is what a real broker makes of them.

The rows are those of `situations.py`: each thirtieth, or all where `KSEG_WHOLE` is set.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kseg.analysis.doctor import doctor
from tests.interop.broker.broker import Broker
from tests.interop.broker.situations import SITUATIONS, Situation
from tests.interop.broker.startup import Starts, compared
from tests.interop.kafka import needed
from tests.shares import WHOLE

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

STEP = 1 if WHOLE else 30


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starts]:
    with needed():
        made = Starts(tmp_path_factory.mktemp("starts"))
    yield made
    made.close()


def test_there_are_enough_situations() -> None:
    assert len({each.title for each in SITUATIONS}) == len(SITUATIONS) >= 80


@pytest.mark.parametrize("situation", SITUATIONS[::STEP], ids=lambda one: one.title)
def test_the_doctor_says_what_a_start_makes_of_it(starts: Starts, situation: Situation) -> None:
    differs, _found, _became = compared(starts, situation)
    assert differs == []


def test_a_node_that_is_no_controller_fetches_its_metadata_log(tmp_path: Path) -> None:
    """The controller is another process, and has the log."""
    homes = [tmp_path / str(number) for number in (1, 2)]
    for home in homes:
        home.mkdir()
    with needed():
        made = [Broker(home, of_node(int(home.name))) for home in homes]
    with made[0] as controller, made[1] as node:
        voters = [line for line in lines_of(controller) if line.startswith(_VOTERS)]
        listener = f"listeners=CONTROLLER://{voters[0].partition('@')[2]}"
        rewrite(controller, "process.roles=controller", listener)
        listener = f"listeners=PLAINTEXT://{node.bootstrap}"
        rewrite(node, "process.roles=broker", listener, *voters)
        ids = (each.data / "meta.properties" for each in made)
        cluster_id, other = (path.read_text() for path in ids)
        (node.data / "meta.properties").write_text(
            _CLUSTER.sub(_CLUSTER.findall(cluster_id)[0], other)
        )
        controller.start()
        node.start()
        node.create("orders")
        node.produce("orders", [{"records": [{"value": b"v"}] * 10}])
        node.stop()
        shutil.rmtree(node.data / "__cluster_metadata-0")
        found = doctor([node.data], broker_config=node.properties)
        assert found.ok
        assert "metadata-fetched" in {each.code for each in found.all_findings()}
        node.start()
        node.wait_for_leaders("orders")
        assert len(node.consume("orders")) == 10
        assert (node.data / "__cluster_metadata-0").is_dir()
        assert list(node.data.glob("*-stray")) == []


_VOTERS = "controller.quorum.voters"
_CLUSTER = re.compile("cluster.id=.*")


def of_node(number: int) -> dict[str, object]:
    """What lets each of the two be formatted alone; the controller is node 1."""
    return {"node.id": number, **({_VOTERS: f"{number}@127.0.0.1:9"} if number > 1 else {})}


def lines_of(broker: Broker) -> list[str]:
    return broker.properties.read_text(encoding="utf-8").splitlines()


def rewrite(broker: Broker, *lines: str) -> None:
    """Settings of a node with one role."""
    names = {"advertised.listeners", *(line.partition("=")[0] for line in lines)}
    kept = [line for line in lines_of(broker) if line.partition("=")[0] not in names]
    broker.properties.write_text("\n".join([*kept, *lines, ""]), encoding="utf-8")
