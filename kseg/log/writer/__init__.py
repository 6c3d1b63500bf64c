"""A log under its one writer.

    state             what the log consists of, and what its readers see of it
    open              the lock, the claim on the directory, loading, the active segment
    append            one append: judged whole, then epochs, roll, bytes, producers, readers
    plain_append      the same in few steps, for sound batches of no producer
    one_batch, replicas   the header of one batch; what a follower asks of its leader's batches
    append_result     what an append answers
    flush             rolls, flushes and the good end: what is relied on before what relies on it
    truncate          the end cut back, the start moved forward, all of it begun anew
    retention         which old segments go, and why
    segment_deletion  the files of segments that go
    room              the order on a disk that is full

Whoever changes the log holds `LogState.lock`, by `changing`, and lets readers see the change by
`publish`.
"""
