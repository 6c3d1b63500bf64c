"""A log under its one writer.

    state       the segments and offsets of the log, and the version that its readers see
    append      one append: judged and placed by a kernel, or step by step where it is unusual; then
                epochs, roll, bytes, producers, readers
    flush       rolls, flushes and the clean close; moves the recovery point, which
                `log.data_directory` writes; openings: the lock, the claim on the directory, loading
    truncate    cutting the end, planned or at once; moving the start forward; starting all of the
                log again
    retention   the expired segments, and why
    removal     removing files of segments, and the order of the steps on a full disk

Each change of the log holds `LogState.lock`, by `changing`; readers see a new version, by
`publish`, or by `advance` after an append.
"""
