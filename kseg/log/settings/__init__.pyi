from kseg.log.settings.broker_names import SettingValue as SettingValue
from kseg.log.settings.joined import OF_TOPICS as OF_TOPICS
from kseg.log.settings.joined import PartitionSettings as PartitionSettings
from kseg.log.settings.joined import Settings as Settings
from kseg.log.settings.joined import settings as settings
from kseg.log.settings.sources import SettingSources as SettingSources
from kseg.log.settings.sources import group_by_broker as group_by_broker
