"""`kseg dump --kafka`: the lines of Kafka's own dump tool, kafka-dump-log.

    options    the options, under Kafka's names
    run        from the options to a run of the tool: files, complaints, the exit code
    logs       batches and records of logs and KRaft snapshots
    lines      their lines, as templates of the text kernel; keys and values
    decoders   records of internal topics, and control records
    older      the lines of older releases; messages of magic 0 and 1
    indexes    indexes and producer snapshots, and the entries that the tool compares with the log

Lines are Kafka's byte for byte, but for a terminal, where bytes that could steer it are escaped.
Where Kafka's tool ends in a stack trace, these lines end at the same place, with one error.

Source: Kafka 4.2 `kafka.tools.DumpLogSegments`.
"""

from __future__ import annotations
