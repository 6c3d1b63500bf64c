"""What a log knows of its producers: checked before an append, kept after it.

state              all producers of a log: `prepare` judges an append, `commit` keeps it
entry              one producer: the rules that refuse a sequence or an epoch
open_transactions  transactions that are not decided yet
verification       guards of transactions that a coordinator has to verify
snapshots          the files that state comes back from
"""
