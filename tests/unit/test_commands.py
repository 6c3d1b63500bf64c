"""Commands in messages: a shell reads them back as they were meant."""

from __future__ import annotations

import os
import subprocess

import pytest

from kseg.commands import command_line


@pytest.mark.parametrize(
    "word",
    [
        "/var/lib/kafka/orders-0",
        "sp ace",
        "it's",
        "",
        "$HOME `id` ; & | > * ? ~ # !x",
        'a "quoted" \\ path',
        "two\nlines\tand \x1b[31m",
        "caf\u00e9",
        "right\u202eleft it's \\",
        os.fsdecode(b"caf\xe9 \xff"),
    ],
)
def test_a_shell_reads_a_command_back_as_it_was_meant(word: str) -> None:
    line = command_line("printf", "%s", word)
    assert line.isprintable()
    told = subprocess.run(["bash", "-c", line], capture_output=True, check=True)
    assert told.stdout == os.fsencode(word)
