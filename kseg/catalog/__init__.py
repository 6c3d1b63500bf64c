"""The partitions and files that paths name: local paths, URLs, globs, replicas and tiers."""
