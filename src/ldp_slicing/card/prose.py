"""The sentences of a card.

Cards of one version are read, because no other was released. A card must stay readable for as long as its releases
exist: once the software is released, changing a sentence means raising CARD_VERSION and keeping the old sentence, too.
"""

from __future__ import annotations

CARD_VERSION = 6

NAMES = "file names and folders"
EQUALITY = "which sources are equal: they were released under an owner's key, so equal sources have equal releases"
SIZE = "width and height"
PADDED_SIZE = "width and height, although all releases have one size: the padding shows them"
NOT_COMPLETE = "The run is not complete: what was released is stated above, and its owner may release more."
SERIES = "which DICOM files belong to the same study, series and frame of reference"
NOT_PROTECTED = (
    SIZE,
    "how many images there are, their order and when they were released",
    NAMES,
    "labels or any other data released beside the images",
)
_SAME_SOURCE = (
    "Releasing the same source t times, or t near-duplicates of it (bursts, re-encodings, crops, frames), "
    "costs t times these epsilons."
)
_AVERAGING = (
    "Averaging n x n released pixels removes noise, so a larger image of the same scene reveals more at the same eps "
    "per pixel."
)
_RANDOMNESS = (
    "The bounds are exact for ideal random bits. The noise comes from AES-256 instead: an adversary of limited "
    "computing power gains at most its advantage in telling AES-256 from random bits, added to each advantage above."
)
_NO_LIMIT = (
    "Where there is no limit, only measured attacks tell what an adversary can see. Networks reconstructed faces from "
    "single releases of 112 x 112 pixels by the paper's plan with pruning. A face recogniser took half of them for the "
    "person in the source at eps 2.4 per pixel, and nearly all at eps 5.2. An attack that failed does not show that a "
    "better one fails."
)
_PLANS = (
    "Compare eps only within one plan. Between plans, compare what attacks recovered: thick slices and amplified "
    "detail can reveal more at a smaller eps."
)
_ITS_WRITERS_WORD = (
    "The releases show neither pruning and shrinking before the noise, nor the number of releases of one source, nor "
    "whose key was used, and the plan and its eps only roughly: there the card is its writer's word."
)
_LARGE = f"{_AVERAGING} The attacks were measured on images of at most 224 x 224 pixels. Larger images reveal more."
READ_THIS = (_SAME_SOURCE, _NO_LIMIT, _PLANS, _LARGE, _RANDOMNESS, _ITS_WRITERS_WORD)
WITHOUT_VOIDED = (
    "without releases that the owner says were destroyed before anybody received them, which nobody else can check"
)
EXPLANATION = (
    "  (%: bound on correct guesses of which of two values it was; "
    "guessing: 50 %; no limit: the bound rules out nothing)"
)
