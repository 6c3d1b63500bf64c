"""A log under its one writer.

    state             what the log consists of, and what its readers see of it
    open              the lock, the claim on the directory, loading, the active segment
    append            one append: judged and placed by a kernel, or step by step where it is
                      unusual; then epochs, roll, bytes, producers, readers
    flush             rolls, flushes and the good end: what is relied on before what relies on it
    truncate          the end cut back, the start moved forward, all of it begun anew
    retention         which old segments go, and why
    segment_deletion  the files of segments that go
    room              the order on a disk that is full

Each change of the log holds `LogState.lock`, by `changing`; readers see it after `publish`.
"""
