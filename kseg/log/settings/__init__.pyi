from kseg.log.settings.broker_names import SettingValue as SettingValue
from kseg.log.settings.joined import PartitionSettings as PartitionSettings
from kseg.log.settings.joined import Settings as Settings
from kseg.log.settings.joined import settings as settings
