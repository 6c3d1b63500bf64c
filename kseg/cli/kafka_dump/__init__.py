"""`kseg dump --kafka`: the lines of Kafka's own dump tool, kafka-dump-log.

    options     the options, under Kafka's names; `run`: from them to a run of the tool
    dispatch    which file is dumped how; what follows on standard error; the exit code
    logs        batches and records of logs and KRaft snapshots
    lines       the lines of batches and records, as templates of the text kernel
    parsers     key and payload by Kafka's decoder classes; `decoders`: those of internal topics
    control     control records
    json_text   messages as JSON; `remote_text`: remote log metadata as Java's objects print it
    old_lines   the lines of older releases
    messages    what messages of magic 0 and 1 say of themselves; values whose lengths lie
    indexes     offset and time indexes, and what the tool compares in them
    entries     producer snapshots and transaction indexes

Lines are Kafka's byte for byte, but for a terminal, where what could steer it is escaped. Where
Kafka's tool ends in a stack trace, these lines end at the same place, with one error.

Source: Kafka 4.2 `kafka.tools.DumpLogSegments`.
"""

from __future__ import annotations
