"""The settings of partitions, from where a broker has them; nothing here changes a file.

cluster       the state by the records of `__cluster_metadata`: topics, configurations, brokers ...
metadata_log  the directory with the log; the log and its snapshots, up to a moment, and the
              committed part of it
joined        `settings`: each partition's settings, each with its source; data directories of
              several brokers
targets       the partitions of a topic for records of others, checked against the metadata log

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

__all__, __getattr__ = door(__name__, __file__)
