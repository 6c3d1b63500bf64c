"""What a log knows of its producers: checked before an append, kept after it.

state      all producers of a log: `prepare` judges an append, `commit` keeps it
entry      one producer: the rules that refuse a sequence or an epoch
snapshots  the files from which a load restores the state
"""
