from kseg.format.encode import encode_messages_07 as encode_messages_07
from kseg.legacy.message import Message as Message
from kseg.legacy.message import MessageAndMetadata as MessageAndMetadata
from kseg.legacy.message_set import Message07 as Message07
from kseg.legacy.message_set import MessageAndOffset as MessageAndOffset
from kseg.legacy.message_set import MessageSet as MessageSet
from kseg.legacy.message_set import MessageSet07 as MessageSet07
from kseg.legacy.old_brokers import down_convert as down_convert
