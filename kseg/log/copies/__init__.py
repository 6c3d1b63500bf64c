"""Copies of one partition side by side: replicas, backups; and one whole log out of several.

joining     matching copies by topic, partition and topic id
source      a copy as tables of its sound batches, and its unknown offsets; several copies in step
choosing    the batches that a merged log takes: cuts, proofs, segments, missing offsets
merge       `plan_merge` decides what a merged log takes, the plan's `apply` writes it

Copies are neither changed nor locked. `kseg.log.salvage` says which batches are sound.
"""

from __future__ import annotations

from kseg._door import door

__all__, __getattr__ = door(__name__, __file__)
