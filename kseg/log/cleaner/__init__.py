"""Compaction: the last record of each key stays, planned first and then done.

values    the plan and the report
inputs    the log: clean and dirty part, bounds, groups of segments
judge     the decision for each batch and record: transactions, last offsets of keys, verdicts
recode    closed segments in another codec, by the same swap
clean     the plan, and the passes that carry it out: groups written anew and swapped in

One pass: `inputs` gives the bounds. The map of `judge` is filled from the dirty part, as far as the
memory reaches. `clean` writes each group below the end of the map anew and puts it in place, and
the checkpoint records the end (`kseg.log.clean_offsets`). A full map makes further passes.
Compaction keeps each record that the map does not know, so a full map costs time and never a
record.

`kseg.format.retain` says which bytes a batch has after it lost records.

Source: Kafka `Cleaner`, `LogCleanerManager`, `LogToClean`.
"""
