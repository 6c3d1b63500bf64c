"""What a log asks of an append before it takes it.

append      `validate_append` for leaders, `validate_replica` for followers
rules       the words of it: origins, rules, results
batches     the checks of batches
records     the checks of records
rewrite     batches made anew, and the heads of those that stay
kafka_0_10  the rules of Kafka 0.10.1
"""
