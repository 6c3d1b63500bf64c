"""Recovery: the changes that a log needs before an append. A plan decides, `apply` does it.

recover       `plan_recovery`, `RecoveryPlan.apply`, `recover`: the plan, and its steps on the disk
load          the steps of loading, in an overlay: where a torn tail is cut, which segments are
              walked; its docstring lists the differences from Kafka
as_broker     the steps exactly as Kafka takes them, with its lookups by unchecked indexes
load_context  the state that the steps share; temporary files, which are cleared first
overlay       a directory as a plan leaves it, and its steps; the applier takes them on the disk
sweep         one walk that finds the entries of a segment's indexes, its producers and epochs
lost          the offsets that go or cannot be read, and the sound batches among them
index_check   whether an index fits its log: one check for verify and for a reindexing, a quick one
              for a load (Kafka's `sanityCheck`); the end of a log that was closed cleanly
reindex       rebuilt indexes and snapshots
plan          plans and reports of all changes, and the frame in which a plan is applied
backup        keeps the bytes that a repair cuts, replaces or removes, before it does so
"""

from __future__ import annotations

from kseg._door import door

__all__, __getattr__ = door(__name__, __file__)
