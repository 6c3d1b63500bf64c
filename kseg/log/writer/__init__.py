"""A log under its one writer.

    state       the segments and offsets of the log, and the version that its readers see; how it is
                opened: the lock, the claim on the directory, loading, the active segment
    append      one append: judged and placed by a kernel, or step by step where it is unusual; then
                epochs, roll, bytes, producers, readers
    flush       rolls, flushes and the clean close; moves the recovery point, which
                `log.data_directory` writes
    truncate    the end cut back, the start moved forward, or the whole log begun anew
    retention   the old segments that go, and why; the segments that stay, and until when
    removal     the files of segments that go, and the order of the steps on a full disk

Each change of the log holds `LogState.lock`, by `changing`; readers see a new version, by
`publish`, or by `advance` after an append.
"""
