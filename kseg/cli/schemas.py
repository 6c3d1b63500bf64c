"""`kseg schemas`: the schemas of a registry, in a list, or the text of one."""

from __future__ import annotations

import sys
from fnmatch import fnmatchcase

from kseg.cli import output
from kseg.cli.failures import Exit, complain, usage_errors
from kseg.cli.parsing import Paths
from kseg.frames import counted
from kseg.internal.registry import Schema


def schemas(
    paths: Paths,
    subject: str | None,
    schema_id: str | None,
    at: int | None,
    as_json: bool,
) -> int:
    """Run the verb; returns the exit code."""
    from kseg.analysis.schemas import schemas as schemas_of

    with usage_errors():
        found = schemas_of(paths[0] if len(paths) == 1 else paths, at=at)
    kept = [
        each
        for each in found
        if (subject is None or fnmatchcase(each.subject, subject))
        and (schema_id is None or schema_id in (str(each.id), each.guid))
    ]
    if as_json:
        document = {
            "path": output.path_field(paths),
            "schemas": [each.row() for each in kept],
            "findings": [each._asdict() for each in found.findings],
        }
        output.write_document("schemas/1", document)
    else:
        complain(*map(str, found.findings))
        _print(kept, as_text=schema_id is not None)
    is_wrong = any(each.severity == "error" for each in found.findings)
    is_missing = not kept and (subject is not None or schema_id is not None)
    return Exit.FOUND if is_wrong or is_missing else Exit.OK


def _print(kept: list[Schema], *, as_text: bool) -> None:
    """The text if all that is chosen has one text; else a table."""
    if not kept:
        complain("kseg: no schema here is chosen")
    elif as_text and not sys.stdout.isatty() and len({each.text for each in kept}) == 1:
        output.binary_stdout().write(f"{kept[0].text}\n".encode())
    elif as_text and len({each.text for each in kept}) == 1:
        output.write_lines(kept[0].text.split("\n"))
    else:
        head = ("subject", "version", "id", "type", "deleted", "references", "guid")
        rows = [counted(each.row()) for each in kept]
        output.write_table(head, [[row[name] for name in head] for row in rows])
