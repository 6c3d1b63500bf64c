"""Predict a broker's start on data directories: its changes, and the records it loses.

answer       `doctor`: the answer for all data directories of a broker
settings     settings that Kafka refuses or ignores
kraft        the files of KRaft beside its log, and the level of the cluster
values       the answer as values, and its codes
partitions   the load of one partition, by Kafka's own steps (`kseg.log.recovery`)

Nothing is changed, nothing is locked. An error of input and output takes one directory offline; any
other exception of a load stops the broker.

Source: Kafka `LogManager`, `KafkaRaftServer`, `MetaPropertiesEnsemble`, `LogLoader`.
"""

from __future__ import annotations

from kseg._door import door

_HOMES = {
    "kseg.analysis.doctor.answer": ("doctor", "doctor_of"),
    "kseg.analysis.doctor.partitions": ("PartitionUnit",),
    "kseg.analysis.doctor.values": (
        "CODES",
        "DirectoryOutlook",
        "DoctorReport",
        "BrokerFinding",
        "Outcome",
        "PartitionOutlook",
    ),
}
__all__, __getattr__ = door(__name__, _HOMES)
