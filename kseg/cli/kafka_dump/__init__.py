"""`kseg dump --kafka`: the lines of Kafka's own dump tool, kafka-dump-log.

    run        a dump whose rows are these lines: files, batches and records
    lines      the lines of each release, as templates of the text kernel; keys and values
    decoders   records of internal topics, control records, entries of indexes and snapshots

Lines are Kafka's byte for byte, but for a terminal, where bytes that could steer it are escaped.
Damage is reported as by any dump, and the lines go on after it.

Source: Kafka `kafka.tools.DumpLogSegments`.
"""

from __future__ import annotations
