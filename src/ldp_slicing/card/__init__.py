"""The privacy statement that travels with releases. docs/proofs.md, 6 to 9."""

from ldp_slicing.card.card import CARD_BYTES, Card
from ldp_slicing.card.levels import Level
from ldp_slicing.card.statement import Statement

__all__ = ["CARD_BYTES", "Card", "Level", "Statement"]
