"""The records of many partitions, and where they go.

`scan` gives them as columns, `grep` those that match a pattern; `exports` and `lake` write files
for other programs. `partitioners` knows the partition of a key, and `topic_writer` writes a topic.
"""
