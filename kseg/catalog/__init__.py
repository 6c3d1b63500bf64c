"""The contents of paths: files, partitions, data directories, URLs, globs, replicas and tiers.

`catalog` has `Catalog.of`, which every verb, function and Spark task asks. It lists each partition
once, in the order of the paths, and says what it leaves out: copies that a broker has set aside,
replicas, and what cannot be read. It knows names and directories alone. `kseg.files.names` sorts
the names of one directory; `kseg.log.reader.LogView.at` opens a partition.
"""
