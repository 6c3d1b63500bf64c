"""The state of the producers of a log: checked before an append, updated after it.

state      all producers of a log: `prepare` judges an append, `commit` keeps it
entry      one producer: the rules that refuse a sequence or an epoch
snapshots  the files from which a load restores the state
"""
