"""Compaction: the last record of each key stays, planned first and then done.

inputs    the log: clean and dirty part, groups of segments, why they stay
judge     the decision for each batch and record: transactions, last offsets of keys, verdicts
rewrite   a pass: groups written anew, and swapped in
clean     the plan with its bounds, the passes that apply it, and the report

One pass: `clean` gives the bounds. The map of `judge` is filled from the dirty part, up to the
limit of memory. `rewrite` writes each group below the end of the map anew and swaps it in, and the
checkpoint records the end (`kseg.files.checkpoints`). A full map makes further passes. Compaction
keeps each record that the map does not know, so a full map costs time and never a record.

`kseg.format.retain` says which bytes a batch has after it lost records.

Source: Kafka `Cleaner`, `LogCleanerManager`, `LogToClean`.
"""
