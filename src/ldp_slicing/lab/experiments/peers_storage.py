"""What a release of each system takes up, and how long it takes to make one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace

import torch
from torch import Tensor

from ldp_slicing.lab.attacks.recognition import load_recogniser
from ldp_slicing.lab.data.lfw import load_lfw, sides
from ldp_slicing.lab.experiment import Experiment, ExperimentContext
from ldp_slicing.lab.peers import MODULES, load_peers, systems_first
from ldp_slicing.lab.peers.interface import BATCH, Peer, derive_keys
from ldp_slicing.lab.peers.training import shortened
from ldp_slicing.lab.rows import Row, select
from ldp_slicing.lab.tables import markdown

PUBLIC = 320  # images that a peer learns from, in no epochs: an untrained network takes as long as a trained one
BATCHES = (1, 256)
ROUNDS, LONGEST = 5, 5.0  # rounds at most, and seconds after which no other one begins
SIZED = 8  # releases whose compressed size is averaged
SYSTEMS = tuple(MODULES)


def measure(context: ExperimentContext) -> Iterator[Row]:
    peers = {peer.name: shortened(peer, 0) for system in SYSTEMS for peer in load_peers(system)}
    places = dict.fromkeys(("cpu", context.device.type))
    rows = [Row("peers-storage", "lfw", options={"peer": name, "place": place}) for place in places for name in peers]
    pending = [row for row in rows if context.pending(row)]
    if not pending:
        return
    faces = load_lfw(context.data)
    side, _ = sides(faces)
    images = torch.from_numpy(faces.images).permute(0, 3, 1, 2)
    for row in pending:
        device = torch.device(str(row.options["place"]))
        public = images[side.images[:PUBLIC]].contiguous().to(device)
        people = torch.from_numpy(side.people[:PUBLIC]).to(device)
        peer = peers[str(row.options["peer"])].train(public, people, load_recogniser(context.data, device))
        timed = _timed(peer, images[: max(BATCHES)].to(device))
        few = images[: min(len(images), SIZED)].to(device)
        size = peer.protect(few, derive_keys("size", len(few))).size()
        context.log(f"{row.label}: {timed}")
        yield replace(row, metrics={"size": asdict(size), "milliseconds": timed, "source_values": few[0].numel()})


def _timed(peer: Peer, images: Tensor) -> dict[str, float]:
    """Milliseconds per image by the size of the batch. What takes long takes much memory, so it is made in parts."""
    found: dict[str, float] = {}
    for batch in BATCHES:
        is_long = batch * min(found.values(), default=0.0) > 1000 * LONGEST
        found[str(batch)] = _milliseconds(peer, images[:batch], min(batch, BATCH) if is_long else batch)
    return found


def _milliseconds(peer: Peer, images: Tensor, part: int) -> float:
    """The shortest time per image of one round or more: processor time of one CPU thread, or time until a GPU is done.

    A round is all images, so many at once as a part has. Values stay on the device.
    """
    clock = time.perf_counter if images.is_cuda else time.process_time  # other programs may share the processor
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = list[float]()
        while len(found) < ROUNDS and sum(found) < LONGEST:
            keys = derive_keys(f"time {len(found)}", len(images))
            began = clock()
            for i in range(0, len(images), part):
                peer.protect(images[i : i + part], keys[i : i + part])
            if images.is_cuda:
                torch.cuda.synchronize(images.device)
            found.append(clock() - began)
    finally:
        torch.set_num_threads(threads)
    return 1000 * min(found) / len(images)


def table(rows: Sequence[Row]) -> str:
    ours = select(rows)
    places = [one for one in ("cpu", "cuda") if select(ours, place=one)]
    heads = ["system", "values", "x values of the image", "dtype", "bytes", "bytes after zlib"]
    heads += [f"{place}, batch {batch}, ms per image" for place in places for batch in BATCHES]
    lines: dict[str, list[str]] = {}
    for row in systems_first(ours, lambda row: str(row.options["peer"])):
        name, size = str(row.options["peer"]), row.metrics["size"]
        if name in lines:
            continue
        times = {str(one.options["place"]): one.metrics["milliseconds"] for one in select(ours, peer=name)}
        cells = [f"{size['values']:,}", f"{size['values'] / row.metrics['source_values']:.3g}", size["dtype"]]
        cells += [f"{size['bytes']:,}", f"{size['zlib_bytes']:,.0f}"]
        found = [times.get(place, {}).get(str(batch)) for place in places for batch in BATCHES]
        lines[name] = [name, *cells, *("-" if value is None else f"{value:.3g}" for value in found)]
    return markdown(heads, [*lines.values()])


EXPERIMENT = Experiment(
    "peers-storage",
    """
Size of a release, and time to make one from a 112 x 112 image in memory: the shortest of up to five rounds, as
processor time of one CPU thread, and on the GPU where there is one. No round begins after five seconds, so slow systems
have one. Other systems count values: a 32-bit map of the image's size counts as much as an 8-bit channel. Networks are
not trained for this, because training does not change the times. On the GPU, LDP-Slicing is simulated: masks come from
PyTorch's generator and not from a cipher. The page of `peers` lists how each system deviates from what was published.

- A batch of 256 that would take longer than five seconds, by the time of one image, is made in parts of 64 images: at
  once it may need 15 GiB of memory.
- On the CPU, some systems take longer per image in a large batch than alone: the operating system maps the memory of
  large tensors anew.
""",
    measure,
    table,
)
