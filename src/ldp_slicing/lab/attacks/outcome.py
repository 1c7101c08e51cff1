"""What an attack on releases returns: measurements, and example images for a contact sheet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ldp_slicing.lab.attacks.attack_target import AttackTarget
from ldp_slicing.lab.attacks.contact_sheet import low_band_of, portrait
from ldp_slicing.lab.rows import Measurement, Metrics

EXAMPLES = 6  # images on a contact sheet

Examples = Mapping[float, Sequence[Tensor]]  # by eps or number of releases: releases and reconstructions


@dataclass(frozen=True)
class Outcome:
    """What an attack has measured.

    measurements: "release" and "reconstruction" each have the numbers of ``AttackTarget.score``.
    examples: releases and reconstructions of ``example_sources``, by eps or by number of releases.
    metrics: what the attack has fitted to public images.
    """

    measurements: tuple[Measurement, ...]
    examples: Examples
    metrics: Metrics = field(default_factory=dict)


def example_sources(target: AttackTarget) -> Tensor:
    """uint8 [K, C, H, W]: sources that may be published. For faces this is one portrait in the public domain."""
    return portrait().to(target.sources.device) if target.faces else target.sources[:EXAMPLES]


def example_columns(
    sources: Tensor, view: Tensor, examples: Examples, unit: str, *, low_band: bool = False
) -> dict[str, Tensor]:
    """The columns of a contact sheet. A reconstruction is beside its release, or below it if there is only one source.

    unit: what the keys of ``examples`` are, such as "eps".
    low_band: also show the low band, which pruning removes: of the source, and as the attack has recovered it.
    """
    alone, shown = len(sources) == 1, 3 if low_band else 2
    names = (
        ("release", "reconstruction", "low band recovered") if alone else ("release", "attack", "low band\nrecovered")
    )
    groups = [("", ("source", "view", "low band")[:shown], (sources, view, low_band_of(sources)))]
    for key, (release, guess) in sorted(examples.items()):
        groups.append((f"{unit} {key:g}", names[:shown], (release, guess, low_band_of(guess))))
    columns = dict[str, Tensor]()
    for title, words, images in groups:
        if alone:
            head = ",\n".join(words)
            columns[f"{title}: {head}" if title else head] = torch.cat([image.float() for image in images[:shown]])
        else:
            columns |= {f"{title}\n{word}".strip(): image for word, image in zip(words, images, strict=False)}
    return columns
