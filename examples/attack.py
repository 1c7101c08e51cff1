"""Why one source is released once: average several releases of it; needs `pip install 'ldp-slicing[lab]'`.

    python examples/attack.py [OUTPUT FOLDER]

The adversary knows the plan and receives t releases of one source at eps 20. It computes posterior means.
"""

import sys
from pathlib import Path

import torch
from PIL import Image
from torchvision.transforms.v2.functional import pil_to_tensor, to_pil_image

from ldp_slicing import Plan
from ldp_slicing.lab.attacks.averaging import average

out = Path(sys.argv[1] if len(sys.argv) > 1 else "demo")
out.mkdir(parents=True, exist_ok=True)
with Image.open(Path(__file__).with_name("astronaut.jpg")) as portrait:
    source = pil_to_tensor(portrait.resize((128, 128)))

panels = []
for t, images in average(source[None], Plan.paper(20.0), (1, 5, 25), prune=None):
    reconstructed = images[0].round().to(torch.uint8)
    error = (reconstructed.float() - source).square().mean()
    print(f"{t:2} releases, eps {20 * t:3} per pixel: PSNR {10 * torch.log10(255**2 / error):.1f} dB")
    panels.append(reconstructed)

to_pil_image(torch.cat([*panels, source], dim=2)).save(out / "attack.png")
print(f"{out / 'attack.png'}: after 1, 5 and 25 releases, and the source")
