"""A log under its one writer.

    state             what the log consists of; publishes the version that its readers see
    open              the lock, the claim on the directory, loading, the active segment
    append            one append: judged and placed by a kernel, or step by step where it is
                      unusual; then epochs, roll, bytes, producers, readers
    records           what a caller appends: batches, or records of which batches are made
    flush             rolls, flushes and the clean close; moves the recovery point, which
                      `log.data_directory` writes
    truncate          the end cut back, the start moved forward, or the whole log begun anew
    retention         which old segments go, and why
    staying           why the others stay, and until when
    segment_deletion  the files of segments that go, renamed to `.deleted` or removed
    room              the order of the steps on a full disk

Each change of the log holds `LogState.lock`, by `changing`; readers see a new version, by
`publish`, or by `advance` after an append.
"""
