"""Kernels for the message sets before Kafka 0.11: magic 0 and 1, and the formats of Kafka 0.7."""
