"""Groups and transactional ids of brokers' fixtures equal the lists in `data/coordinators.json`.

Run `python -m tests.conformance.test_groups_fixtures DIR` to write the lists of the cases in a
directory with `old/` and `new/`. The commits of 3.9.1 and 4.2.0 were compared once with the lines
of Kafka's own dump tool.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import kseg

LISTS: Final = Path(__file__).parents[1] / "data" / "coordinators.json"


def listed(case: Path) -> dict[str, Any]:
    """Groups, commits, members, share states and transactional ids of a case."""
    found, transactions = kseg.groups(case), kseg.transactions(case, now=0)
    return {
        "groups": [list(each[:7]) for each in found],
        "members": [
            [each.group, each.member_id, each.client_id, each.topics] for each in found.members
        ],
        "commits": [list(row.values())[:7] for row in found.commits.rows()],
        "share": [list(each[:4]) for each in found.share],
        "ids": [list(each[:5]) for each in transactions.ids],
        "findings": [each.code for each in (*found.findings, *transactions.findings)],
    }


def test_groups_are_those_of_the_list(fixture_cases: list[Path]) -> None:
    lists = json.loads(LISTS.read_text("utf-8"))
    here = [case for case in fixture_cases if f"{case.parent.name}/{case.name}" in lists]
    assert len(here) > 3
    for case in here:
        wanted = lists[f"{case.parent.name}/{case.name}"]
        assert json.loads(json.dumps(listed(case))) == wanted, case


if __name__ == "__main__":
    cases = sorted(Path(sys.argv[1]).glob("*/*/__consumer_offsets-0"))
    found = {f"{path.parents[1].name}/{path.parent.name}": listed(path.parent) for path in cases}
    lines = (f"{json.dumps(name)}: {json.dumps(one)}" for name, one in found.items())
    LISTS.write_text("{" + ",\n".join(lines) + "}\n", "utf-8")
