"""Questions about whole logs: `verify` finds damage, `stats` counts the contents.

`doctor` predicts a broker's start, `explain` names the reason that each byte is still on the disk;
their packages have guides of their own.

Every analysis has one shape: `examine(unit, options)` gives a small picklable value for one file or
directory, `merge` joins two of them in any order, `report` turns the merged one into rows. One
process, several, and a Spark job run the same three functions.
"""
