"""The settings of partitions, from where a broker has them; nothing here changes a file.

cluster       the state by the records of `__cluster_metadata`: topics, configurations, brokers ...
metadata_log  the log and its snapshots, up to a moment, and the committed part of it
joined        `settings`: each partition's settings, each with its source; data directories of
              several brokers

A setting comes from the first of these that has it:

    1. settings given for the topic (`--config TOPIC:NAME=VALUE`)
    2. the topic's ConfigRecord; or the settings that Kafka, or the cleaner's checkpoint, imply
    3. the broker's dynamic configuration, then the cluster's
    4. `server.properties`
    5. settings given for all topics (`--config NAME=VALUE`)
    6. Kafka's default. For limits of retention, and in a broker's directory for the policy, only
       where all of 2, 3 and 4 were read; see `_Joined._deleting_defaults`

A partition belongs to the topic whose id its `partition.metadata` has. If the topic's configuration
is unknown, no weaker source decides on deletion.

Source: Kafka `ConfigurationsImage`, `TopicsImage`, `MetadataBatchLoader`, `LogConfig`,
`ServerTopicConfigSynonyms`.
"""

from __future__ import annotations

from kseg._door import door

#: The public names of this package.
_HOMES = {
    "kseg.log.settings.cluster": (
        "BROKER",
        "BROKER_NAMES",
        "DIRECTORY_RESERVED_MAX",
        "FACTS",
        "TOPIC",
        "Assigned",
        "Cluster",
        "Fact",
        "Place",
        "SettingValue",
        "broker_name_of",
    ),
    "kseg.log.settings.metadata_log": (
        "bootstrap_level",
        "certain_end",
        "check_snapshot",
        "end_at",
        "log_batches",
        "read_cluster",
        "voters_of",
    ),
    "kseg.log.settings.joined": (
        "OF_TOPICS",
        "PartitionSettings",
        "SettingSources",
        "Settings",
        "group_by_broker",
        "settings",
    ),
}
__all__, __getattr__ = door(__name__, _HOMES)
