"""Will a broker start on these data directories, what will it do, and what would be lost?

answer       `doctor`: the answer for all data directories of a broker
values       the answer as values, and as JSON
codes        what can be found, with what follows from it
partitions   what loading makes of one partition, by Kafka's own steps (`kseg.log.recovery`)
homes        what lies beside the partitions of a data directory: ids, checkpoints, rights, room
quorum       the metadata log: missing, or cut; what the broker forgets, what mends it
assigned     partitions and directories that the metadata log gives to this node
ensemble     what shows only across the data directories of a broker
broker       what `server.properties` says of directories and threads

Nothing is changed, nothing is locked. An error of input and output takes one directory offline; any
other exception of a load stops the broker.

Source: Kafka `LogManager`, `KafkaRaftServer`, `MetaPropertiesEnsemble`, `LogLoader`, of 4.2.0.
"""

from __future__ import annotations

from kseg._door import door

_HOMES = {
    "kseg.analysis.doctor.codes": ("CODES",),
    "kseg.analysis.doctor.answer": ("RELEASES", "doctor", "plan", "report"),
    "kseg.analysis.doctor.partitions": ("PartitionUnit", "examine"),
    "kseg.analysis.doctor.values": (
        "DirectoryOutlook",
        "Doctored",
        "Noticed",
        "Outcome",
        "PartitionOutlook",
    ),
}
__all__, __getattr__ = door(__name__, _HOMES)
