"""The settings of partitions, from where a broker has them; nothing here changes a file.

cluster        what the records of `__cluster_metadata` come to: topics, configurations, features
metadata_log   the newest sound snapshot of that log, and the records behind it
broker_names   a broker's names for topic settings, as `server.properties` has them
joined         `settings`: each partition's settings, each with its source; what is left alone
sources        what a caller names beside; data directories of several brokers

A setting comes from the first of these that has it:

    1. what was given for the topic (`--config TOPIC:NAME=VALUE`)
    2. the topic's ConfigRecord; or what Kafka, or the cleaner's checkpoint, says of the topic
    3. the broker's dynamic configuration, then the cluster's
    4. `server.properties`
    5. what was given for all topics (`--config NAME=VALUE`)
    6. Kafka's default. For limits of retention, and in a broker's directory for the policy, only
       where all of 2, 3 and 4 were read; see `_Joined._deleting_defaults`

A partition belongs to the topic whose id its `partition.metadata` has. Where the topic's
configuration is not known, no weaker source decides on what is deleted.

Source: Kafka `ConfigurationsImage`, `TopicsImage`, `MetadataBatchLoader`, `LogConfig`,
`ServerTopicConfigSynonyms`.
"""

from __future__ import annotations

from kseg._door import door

#: What programs may use of this room.
_HOMES = {
    "kseg.log.settings.broker_names": ("SettingValue",),
    "kseg.log.settings.cluster": ("TOPIC", "Assigned", "Cluster"),
    "kseg.log.settings.metadata_log": ("read_cluster",),
    "kseg.log.settings.joined": ("OF_TOPICS", "PartitionSettings", "Settings", "settings"),
    "kseg.log.settings.sources": ("SettingSources", "group_by_broker"),
}
__all__, __getattr__ = door(__name__, _HOMES)
