"""The records of many partitions, and where they go.

`query` declares the questions that a reading answers. `scan` gives the records as columns, `grep`
those that match a pattern; `narrowing` finds the part that is read; `exports` and `lake` write
files for other programs. `partitioners` knows the partition of a key, and `topic_writer` writes a
topic.
"""
