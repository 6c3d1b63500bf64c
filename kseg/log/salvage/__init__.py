"""The records of a damaged log that can be proved, in a log of their own.

The algorithm, for each partition:

1. Find every sound batch of each file, with any bytes between them.
2. Keep the batches of the log. A file begins with a batch, and a sound batch says where the next
   one begins. After a damaged one go on where its checksum says that it ends, where its length
   leads to a sound batch, or at a batch that the offset index names; in a merge also at a batch
   that another copy has. Else the batches that follow may be data of a record: leave them out.
3. Keep the batches with a certain place. Offsets and leader epochs must ascend. If they do not,
   keep the batches on which all readings with the fewest batches left out agree. Leave out a single
   batch that the checkpoint of epochs contradicts, or that lies alone beside the one gap of a dense
   log.
4. Copy these batches, byte for byte, into segments under the names that the log had; list the lost
   offsets; copy all other bytes into the quarantine.

Nothing is moved to another offset, and no byte of a batch is changed.

values      a provable partition as values; headers of its batches, read again from their files; its
            damaged transactions
places      step 3: which of them have a certain place
provable    steps 1 to 3 for one copy: provable batches by offset, other bytes, lost offsets; its
            `Chains` are step 2
output      step 4: a new data directory of batches from other files, whole or not at all
salvage     `plan_salvage` and the plan's `apply`: a partition, or all of a data directory

A copy is never changed. Bytes that the disk cannot read are lost.

Source: no Kafka class; its recovery cuts everything after the first bad byte. LevelDB's
`repair.cc` has the same shape: read the sound part, derive indexes, archive the rest.
"""

from __future__ import annotations

from kseg._door import door

__all__, __getattr__ = door(__name__, __file__)
