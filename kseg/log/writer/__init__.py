"""A log under its one writer.

    state       the segments and offsets of the log, and the version that its readers see; how it is
                opened: the lock, the claim on the directory, loading, the active segment
    append      one append: judged and placed by a kernel, or step by step where it is unusual; then
                epochs, roll, bytes, producers, readers
    flush       rolls, flushes and the clean close; moves the recovery point, which
                `log.data_directory` writes
    truncate    cutting the end, moving the start forward, or starting the whole log again
    retention   the expired segments, and why; the segments that stay, and until when
    removal     removing files of segments, and the order of the steps on a full disk

Each change of the log holds `LogState.lock`, by `changing`; readers see a new version, by
`publish`, or by `advance` after an append.
"""
