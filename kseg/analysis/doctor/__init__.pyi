from kseg.analysis.doctor.answer import RELEASES as RELEASES
from kseg.analysis.doctor.answer import doctor as doctor
from kseg.analysis.doctor.codes import CODES as CODES
from kseg.analysis.doctor.values import DirectoryOutlook as DirectoryOutlook
from kseg.analysis.doctor.values import Doctored as Doctored
from kseg.analysis.doctor.values import Noticed as Noticed
from kseg.analysis.doctor.values import Outcome as Outcome
from kseg.analysis.doctor.values import PartitionOutlook as PartitionOutlook
