"""Release a DICOM series; needs `pip install 'ldp-slicing[dicom]'`.

    python examples/dicom_series.py [OUTPUT FOLDER]

Each file of the series becomes one secondary capture with new UIDs and without the tags of the source.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pydicom
from pydicom.uid import ExplicitVRLittleEndian, generate_uid

out = Path(sys.argv[1] if len(sys.argv) > 1 else "demo")
(out / "series").mkdir(parents=True, exist_ok=True)
# The same UIDs each time, so that the example can be run again.
study, series, *instances = (generate_uid(entropy_srcs=[f"example {number}"]) for number in range(5))
y, x = np.mgrid[-1:1:64j, -1:1:64j]

for number in range(3):  # three slices of a ball, 12 bits each
    made = pydicom.Dataset()
    made.file_meta = pydicom.dataset.FileMetaDataset()
    made.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    made.SOPClassUID, made.SOPInstanceUID = "1.2.840.10008.5.1.4.1.1.2", instances[number]
    made.StudyInstanceUID, made.SeriesInstanceUID, made.Modality = study, series, "CT"
    made.PatientName, made.PatientID, made.InstanceNumber = "Doe^Jane", "12345", number
    made.Rows, made.Columns, made.SamplesPerPixel, made.PhotometricInterpretation = 64, 64, 1, "MONOCHROME2"
    made.BitsAllocated, made.BitsStored, made.HighBit, made.PixelRepresentation = 16, 12, 11, 0
    made.PixelData = np.where(x**2 + y**2 < 0.8 - 0.2 * number, 2600, 300).astype("<u2").tobytes()
    made.save_as(out / "series" / f"{number}.dcm", enforce_file_format=True)

command = [sys.executable, "-m", "ldp_slicing", "privatize", out / "series", out / "released", "--epsilon", "3.5"]
subprocess.run([*command, "--ledger", out / "ledger.sqlite"], check=True)
for path in sorted((out / "released").glob("*.dcm")):
    release = pydicom.dcmread(path)
    print(path.name, repr(str(release.PatientName)), release.BitsStored, "bits,", release.pixel_array.shape)
