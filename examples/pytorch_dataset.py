"""Train a network on one release of each image; needs `pip install 'ldp-slicing[torch]'`.

    python examples/pytorch_dataset.py [OUTPUT FOLDER]

The sources are made here: stripes that run down (class 0) or across (class 1).
"""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, default_collate

from ldp_slicing import Plan, Slicer
from ldp_slicing.torch import Decoder, ReleasedDataset

out = Path(sys.argv[1] if len(sys.argv) > 1 else "demo")
torch.manual_seed(0)  # for the sources and the network; seeds have no influence on the noise
plan, labels = Plan.paper(12.0), torch.arange(512) % 2
stripes = (torch.arange(1, 17) % 4 < 2) * 160 + 40
images = torch.where(labels[:, None, None, None] == 0, stripes, stripes[:, None]).expand(-1, 3, -1, -1)
images = (images + torch.randint(0, 50, images.shape)).to(torch.uint8)

# Each source is released once, when the data set is made. All epochs and workers see the same releases.
ReleasedDataset(TensorDataset(images, labels), Slicer(plan, prune="haar"), store=out / "stripes")

released = ReleasedDataset.open(out / "stripes")  # from here on, no source is needed
pixels, labels = default_collate(list(released))
decoded = (Decoder.fit(pixels, plan, prune="haar")(pixels).float() - 128) / 32  # expected values under the plan
network = nn.Sequential(nn.Conv2d(3, 16, 5), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 2))
optimiser = torch.optim.Adam(network.parameters(), 0.01)
for _ in range(8):
    for batch, classes in DataLoader(TensorDataset(decoded[:384], labels[:384]), 64, shuffle=True):
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(batch), classes).backward()
        optimiser.step()
accuracy = (network(decoded[384:]).argmax(1) == labels[384:]).float().mean()
print(f"test accuracy {100 * accuracy:.1f} %, from one release of each image at eps 12")
