"""Questions about whole logs: what is wrong with them (`verify`), what fills them (`stats`).

`doctor` asks what a broker would make of them, `explain` what keeps each byte on the disk; their
rooms have guides of their own.

Every analysis has one shape: `examine(unit, options)` gives a small picklable value for one file or
directory, `merge` joins two of them in any order, `report` turns the merged one into rows. One
process, several, and a Spark job run the same three functions.
"""
