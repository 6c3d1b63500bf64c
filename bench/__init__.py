"""Benchmarks: kseg beside its peers, as ratios taken inside one run.

    python -m bench                  every case, one table, JSON under bench/results
    python -m bench columns index    some groups
    pytest bench                     the same under pytest-benchmark, and that all sides agree
    python -m bench.compare OLD NEW  what moved between two result files

`records` makes the records and `datagen` the logs, `peers` wraps what others offer, `subjects`
wraps kseg, `cases` and `write_cases` pair them, `goals` says what to hold, `pairs` keeps time,
`table` prints. Nothing here is part of the wheel.
"""
