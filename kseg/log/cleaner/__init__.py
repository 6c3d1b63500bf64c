"""Compaction: the last record of each key stays, planned first and then done.

values         what a plan and a report say
inputs         what compaction looks at, of a log open for reading or for appending
bounds         which part of a log is clean, dirty, or not to be touched yet, and whether it is time
offset_map     the last offset of each key, in bounded memory
transactions   which data was aborted, and which markers have no data left
groups         which segments become one
verdicts       what becomes of each batch and each record
rewrite        one group, written anew under `.cleaned`
swap           the new files in the place of the old ones
plan, apply    one after the other

One pass: `bounds` say from where to where; `offset_map` is filled from the dirty part, as far as
there is room; each group below where it ended is written anew and put in place; the checkpoint
says so (`kseg.log.clean_offsets`). A map that was full makes further passes. What the map does not
know is kept, so a full map costs time and never a record.

What a batch looks like that has lost records is for `kseg.format.retain` to say.

Source: Kafka `Cleaner`, `LogCleanerManager`, `LogToClean`.
"""
