from __future__ import annotations

import numpy as np
import pytest
import torch

from ldp_slicing import LdpSlicingError, Plan, Slice
from ldp_slicing.lab.bits import MAX_LOG_ODDS, flip_probabilities, float_rgb, log_odds, mean_words, to_bits
from ldp_slicing.torch.simulate import simulate, to_rgb

THICK = Plan([Slice(0xC08080, 5.2)])


@pytest.mark.parametrize(
    "plan", [Plan.paper(20.0), Plan.grey(8.0, 8), THICK, Plan([Slice(0xFFC000, 6.0), Slice(0x000080, 1.0)])]
)
def test_flip_probabilities_are_those_of_releases(plan: Plan) -> None:
    channels = 3 if plan.is_colour else 1
    sources = torch.randint(256, (4, channels, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    quiet = Plan([Slice(part.bits, 1000.0) for part in plan.slices], plan.word_bits)  # nothing is ever flipped
    seen, released = (
        to_bits(simulate(sources, chosen, torch.Generator().manual_seed(2), prune=None, output="ycbcr"))
        for chosen in (quiet, plan)
    )
    flips = flip_probabilities(plan)
    found = (seen != released).float().mean((0, 2, 3)).reshape(channels, 8).numpy()
    kept = np.array(
        [[plan.kept_bits >> 8 * (channels - 1 - c) + b & 1 for b in range(8)] for c in range(channels)], bool
    )
    assert np.abs(found - flips)[kept].max() < 0.02  # 16384 draws: five standard deviations
    assert (flips[~kept] == 0.5).all()
    assert (log_odds(plan)[~kept] == 0).all()


def test_one_bit_slices_flip_as_the_paper_says() -> None:
    plan = Plan.paper(20.0)
    highest = max(plan.slices, key=lambda part: part.epsilon)
    assert flip_probabilities(plan)[0, 7] == pytest.approx(1 / (np.exp(highest.epsilon) + 1), rel=1e-9)
    assert log_odds(plan)[0, 7] == pytest.approx(highest.epsilon, rel=1e-9)
    assert log_odds(Plan.paper(200.0)).max() == MAX_LOG_ODDS
    assert float(THICK.tables.miss_probability(THICK.slices[0].bits)) == pytest.approx(1 - 16 / (np.exp(5.2) + 15))


def test_bits_there_and_back() -> None:
    words = torch.randint(256, (2, 3, 5, 4), dtype=torch.uint8)
    bits = to_bits(words)
    assert bits.shape == (2, 24, 5, 4)
    assert torch.equal(bits[:, 15], words[:, 1] >> 7)
    assert torch.equal(mean_words(bits), words.float())


def test_colours_back_to_within_rounding() -> None:
    words = torch.randint(256, (2, 3, 30, 30), dtype=torch.uint8)
    assert (float_rgb(words.float()).clamp(0, 255) - to_rgb(words.to(torch.int32))).abs().max() <= 1
    assert torch.equal(float_rgb(words[:, :1].float()), words[:, :1].float())


def test_deep_words_are_refused() -> None:
    with pytest.raises(LdpSlicingError, match="12 bits"):
        flip_probabilities(Plan.grey(8.0, 12))
