from kseg.constants import InternalTopic as InternalTopic
from kseg.internal.arrow_tables import record_batches as record_batches
from kseg.internal.arrow_tables import table_schema as table_schema
from kseg.internal.arrow_tables import tables as tables
from kseg.internal.records import InternalRecord as InternalRecord
from kseg.internal.records import InternalRow as InternalRow
from kseg.internal.records import decode as decode
from kseg.internal.records import rows as rows
