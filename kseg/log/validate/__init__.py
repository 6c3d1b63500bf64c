"""Checks of an append before a log takes it, from a leader or a follower.

append   `validate_append` for leaders, `validate_replica` for followers; rebuilds batches
rules    origins, rules and results, as values
batches  the checks of batches and of records
"""
