"""Changes to closed logs: planned, then applied.

A change is a function that decides, `plan_...`, and the `do` of the plan that it returns. The frame
around `do` is `kseg.log.recovery.plan`: refusals, lock, freshness, room, backup and report.

run         plans of many partitions, applied in place or to copies, under the locks of the data
            directories
recover     recoveries of many partitions
adopt       logs of another place, brought into the empty topics of a stopped broker
adopted_log one such log: read as far as it is taken, its open transactions ended, and made anew for
            its place
swap        logs made beside a data directory, and put in the place of empty partitions
cleanup     the plans of a compaction and of a retention; both of closed partitions
erase       records gone by key or by offset
recode      closed segments in another codec
"""
