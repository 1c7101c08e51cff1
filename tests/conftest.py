from __future__ import annotations

import os

from hypothesis import settings

# No test is timed. CI repeats the same examples, so that a red run means a change; by hand every run tries new ones.
settings.register_profile("ldp-slicing", deadline=None, derandomize=bool(os.environ.get("CI")), print_blob=True)
settings.load_profile("ldp-slicing")
