"""Release a folder of images, each source once, and check the result.

    python examples/folder.py [OUTPUT FOLDER]

The commands do the work: they keep the ledger, resume after an interruption and write card and manifest.
"""

import json
import subprocess
import sys
from pathlib import Path

from PIL import Image

out = Path(sys.argv[1] if len(sys.argv) > 1 else "demo")
sources, releases, ledger = out / "sources", out / "releases", out / "ledger.sqlite"
sources.mkdir(parents=True, exist_ok=True)

with Image.open(Path(__file__).with_name("astronaut.jpg")) as portrait:  # two small images to release
    portrait.resize((128, 128)).save(sources / "colour.jpg")
    portrait.resize((128, 128)).convert("L").save(sources / "grey.png")


def ldp_slicing(*arguments: str | Path) -> str:
    command = [sys.executable, "-m", "ldp_slicing", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


print(ldp_slicing("privatize", sources, releases, "--epsilon", "5.2", "--ledger", ledger))
print(ldp_slicing("privatize", sources, releases, "--epsilon", "5.2", "--ledger", ledger))  # finds nothing new
print(ldp_slicing("verify", releases))

for statement in json.loads((releases / "card.json").read_text())["statements"]:
    levels = {level["unit"]: level["epsilon"] for level in statement["levels"]}
    print(statement["plan"]["word_bits"], "bits per pixel:", levels)
