"""The kernels: compiled functions over buffers, one module for each duty.

None allocates on the word of a file.

avro        payloads of Avro into columns, by a program made from the writer's and reader's schema
blocks      memory for the columns of pieces, used again once no column refers to it
encode      the write path: columns in, one batch out
frames      the frames of lz4, zstd and xerial snappy around compressed bodies
index       bisection of offset, time and transaction indexes
inflate     compressed bodies, by libraries of the system where they are there, else by packages
keymap      keys by their hashes: a column hashed, different ones counted, sums by key
legacy      messages of magic 0 and 1 written, those of Kafka 0.7 walked and written
lines       lines of JSON as columns
located     records at their places, and batches rewritten from those that stay, for compaction
needle      a search for bytes in the values of a column
offset_map  the last offset of each key, in a bounded number of slots, for compaction
placement   appends that are judged and placed at once; choosing batches for index entries
reader      batches of magic 0 to 2 in one pass, into columns; unusual batches one by one
search      sound batches where no length leads to them: after damage
text        rows of columns as JSON lines, CSV or text
validate    the checks of an append, on a batch and each of its records, in one pass
walk        the walk over batches of magic 0, 1 and 2, by their bytes or by headers read alone

A kernel imports nothing above it; seven may be shared among kernels (`cimport`): `kseg._core`,
which holds checksums, headers and varints, and `blocks`, `encode`, `frames`, `inflate`, `located`
and `validate` of `kseg._kernels`.
"""
