"""One class per kind of file on disk. Nothing here knows that several files belong together.

`io` is the only door to the disk and `mapping` the only module that maps. Formats are taught by the
module that reads them: `names`, `log_file`, `offset_index`, `time_index`, `txn_index`,
`producer_snapshot`, `checkpoints`, `metadata`, `lock`.
"""
