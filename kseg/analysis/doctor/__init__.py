"""Predict a broker's start on data directories: its changes, and the records it loses.

words        the codes, and every sentence and remedy: `finding` fills them with values
values       the answer as values
partitions   the load of one partition, by Kafka's own steps (`kseg.log.recovery`)
facts        directories, configuration and metadata log, read once: `BrokerDirectory`, `Node`
kraft        the metadata log, the files of KRaft beside it, and the level of the cluster
rules        data directories, by themselves and together; settings that Kafka refuses or ignores
answer       `doctor`: the answer for all data directories of a broker

A rule is a function that takes facts and gives findings. A new finding is a row of `CODES`, one of
`SENTENCES`, perhaps one of `REMEDIES`, and the lines of its rule.

Nothing is changed, nothing is locked. An error of input and output takes one directory offline; any
other exception of a load stops the broker.

Source: Kafka `LogManager`, `KafkaRaftServer`, `MetaPropertiesEnsemble`, `LogLoader`.
"""

from __future__ import annotations

from kseg._door import door

__all__, __getattr__ = door(__name__, __file__)
