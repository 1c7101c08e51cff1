"""The owner's record of what was released from which source."""

from ldp_slicing.ledger.entries import Approval, Duplicates, Intent, RunPolicy, run_id
from ldp_slicing.ledger.file import default_ledger
from ldp_slicing.ledger.ledger import Ledger, RunRecord
from ldp_slicing.ledger.sums import Selection, Spent, add_up, spent_query

__all__ = [
    "Approval",
    "Duplicates",
    "Intent",
    "Ledger",
    "RunPolicy",
    "RunRecord",
    "Selection",
    "Spent",
    "add_up",
    "default_ledger",
    "run_id",
    "spent_query",
]
