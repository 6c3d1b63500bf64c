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
        registry = schemas_of(paths[0] if len(paths) == 1 else paths, at=at)
    chosen = [
        schema
        for schema in registry
        if (subject is None or fnmatchcase(schema.subject, subject))
        and (schema_id is None or schema_id in (str(schema.id), schema.guid))
    ]
    if as_json:
        document = {
            "path": output.path_field(paths),
            "schemas": [schema.row() for schema in chosen],
            "findings": [finding._asdict() for finding in registry.findings],
        }
        output.write_document("schemas/1", document)
    else:
        complain(*map(str, registry.findings))
        _print(chosen, as_text=schema_id is not None)
    is_wrong = any(finding.severity == "error" for finding in registry.findings)
    is_missing = not chosen and (subject is not None or schema_id is not None)
    return Exit.FOUND if is_wrong or is_missing else Exit.OK


def _print(chosen: list[Schema], *, as_text: bool) -> None:
    """The text if all that is chosen has one text; else a table."""
    if not chosen:
        complain("kseg: no schema here is chosen")
    elif as_text and not sys.stdout.isatty() and len({schema.text for schema in chosen}) == 1:
        output.binary_stdout().write(f"{chosen[0].text}\n".encode())
    elif as_text and len({schema.text for schema in chosen}) == 1:
        output.write_lines(chosen[0].text.split("\n"))
    else:
        head = ("subject", "version", "id", "type", "deleted", "references", "guid")
        rows = [counted(schema.row()) for schema in chosen]
        output.write_table(head, [[row[name] for name in head] for row in rows])
