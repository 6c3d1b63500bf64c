"""A partition's log: the packages, the life of a batch, and the order of a recovery.

Callers hold a `Log` (`log.py`), or many of them together (`directory.py`). `adopt.py` takes over
whole segments that were written elsewhere. `index_rules.py` judges indexes. `kseg.records` scans
many partitions; `kseg.change` changes closed logs.
Programs use these modules, or the names that the package of a room offers. Below are the rooms.
Each has a guide of its own, and imports point down this list only:

    copies      how copies of a partition differ, and a whole copy from damaged ones
    salvage     the provable part of a damaged log, in a log of its own
    cleaner     the last record of each key stays: bounds, offset map, rewrite, swap
    writer      a log under its one writer: open, append, roll, flush, truncate, retain, close
    recovery    the repair after a crash, planned and applied; rebuilt indexes; backups
    tier        segments that brokers moved to a store, and one log of both parts
    reader      a log as readers see it: versions, views, fetches, followers, aborted transactions
    producers   the state of a log's producers: sequences, transactions, snapshots
    settings    the settings of each partition, by the broker's metadata log
    segment     one log file and its indexes: read, written, walked; choosing batches for index
        entries
    validate    the checks of an append

Several rooms share the modules beside them: `config.py` (settings), `data_directory.py` (the lock;
it writes the mark of a clean shutdown and the checkpoints: recovery point, log start, high
watermark; the kinds of its sub-directories), `topic_policy.py` (the known cleanup policy of a
topic), `pending_deletes.py` (`.deleted` files, their removal, and the room that a change needs on a
full disk).

The life of a batch
    1. `writer.append` passes it to a kernel: `Places.lead` for a leader, `Places.follow` for a
       follower (`kseg._kernels.placement`). The kernel judges header, checksum, records, offsets
       and the sequence of its producer. It returns the new header, and where bytes and index
       entries go.
    2. The kernel answers None for a batch that is unusual, or to be refused. Then `validate` checks
       it step by step, and a leader gives it offsets; `producers` compares its sequence with the
       one before. Nothing has changed up to here. Then `writer.append` stores a new leader epoch,
       and rolls if the batch does not fit the active segment.
    3. `segment` writes the bytes with their index entries, or neither.
    4. `producers` notes it, the log's end moves, and `LogState` publishes a new version to readers.
    5. `writer.flush` makes it lasting. Retention, a truncation or compaction takes it away again.

The order of a recovery
    1. `recovery.load_context` clears the temporary files of interrupted work.
    2. `recovery.index_check` checks the ends of the indexes; a fault is a reason to sweep the
       segment.
    3. `recovery.sweep` walks each segment that was not flushed, or has a fault. `recovery.load`
       cuts the log before the first batch that is not sound.
    4. Producers come from the newest sound snapshot and the log after it.
    5. Epochs, log start and recovery point follow the log.
    All steps run in an overlay, which writes them down; each segment is swept once.
    `recovery.recover` returns them as a plan, or applies them to the disk, after a backup of
    deleted bytes. `recovery.load` applies them to a log that is opened.
"""
