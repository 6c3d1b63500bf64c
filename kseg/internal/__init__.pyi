from kseg.constants import InternalTopic as InternalTopic
from kseg.internal.arrow_tables import record_batches as record_batches
from kseg.internal.arrow_tables import table_schema as table_schema
from kseg.internal.arrow_tables import tables as tables
from kseg.internal.log_rows import InternalRow as InternalRow
from kseg.internal.log_rows import rows as rows
from kseg.internal.records import InternalRecord as InternalRecord
from kseg.internal.records import decode as decode
