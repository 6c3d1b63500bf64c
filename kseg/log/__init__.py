"""A partition's log: what lives where, the life of a batch, and the order of a recovery.

Callers hold a `Log` (`log.py`), many of them together (`directory.py`), or a stream over files,
partitions and directories (`scan.py`). `adopt.py` takes over whole segments that were written
elsewhere; `retain.py`, `truncate.py` and `compact.py` plan and apply what they say to a whole log.
Programs come in by these, or by what the package of a room offers. Below lie the rooms; each has a
guide of its own, and imports point down this list only:

    cleaner     the last record of each key stays: bounds, offset map, rewrite, swap
    writer      a log under its one writer: open, append, roll, flush, truncate, retain, close
    recovery    what a start after a crash has to do, planned and applied; indexes made anew
    reader      a log as readers see it: versions, views, fetches, followers, aborted transactions
    producers   what a log knows of its producers: sequences, transactions, snapshots
    segment     one log file and its indexes: read, written, walked; which batch gets an index entry
    validate    what a log asks of an append before it takes it

Beside them lies what several rooms need: `config.py` (settings), `epochs.py` (which leader wrote
what), `data_directory.py` (the lock, the checkpoints and the mark of a clean shutdown),
`topic_policy.py` (what is known of a topic's cleanup), `disk_room.py` (what a full disk gives
back), `copy.py` (a copy of a partition elsewhere).

The life of a batch
    1. `writer.append` has a kernel judge it: header, checksum, records, offsets, the sequence of
       its producer. The kernel says what its head becomes, and where bytes and index entries go.
    2. Where it is unusual, or is to be refused, `validate` judges it step by step and gives it
       offsets where the log leads; `producers` compares its sequence with what came before. Nothing
       has changed up to here. Then `writer.append` writes down a new leader epoch, and rolls where
       the batch has no place in the active segment.
    3. `segment` writes the bytes with their index entries, or neither.
    4. `producers` notes it, the log's end moves, and `LogState.advance` lets readers see it.
    5. `writer.flush` makes it lasting; retention, or a cut, takes it away again.

The order of a recovery
    1. `recovery.temporary_files` clears what interrupted work has left.
    2. `recovery.sanity` looks at the indexes; a fault is a reason to walk the segment.
    3. `recovery.sweep` walks what was not flushed, or is in doubt: the log is cut in front of the
       first batch that is not sound.
    4. Producers come from the newest sound snapshot and the log behind it.
    5. Epochs, log start and recovery point are brought in line with what is there.
    All of it happens in an overlay, which writes down the steps; each segment is swept once.
    `recovery.recover` answers a plan of that, or takes the steps on the disk, where what goes lies
    in a backup first. `recovery.load_result` takes them for a log that is opened.
"""
