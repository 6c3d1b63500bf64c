"""Messages of Kafka 0.7 to 0.10 as objects: magic 0 and 1, and the format before them.

    message        messages of magic 0 and 1
    message_set    sets of them; messages and sets of Kafka 0.7
    old_brokers    what old brokers made of a produced set, and what they sent to old consumers

Nothing else of kseg imports these modules: logs are read and written without message objects.
"""

from __future__ import annotations

from kseg._door import door

__all__, __getattr__ = door(__name__, __file__)
