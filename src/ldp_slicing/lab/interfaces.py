"""The interfaces of the lab: what a learner must have to be trained, stopped and resumed."""

from __future__ import annotations

from typing import Any, Protocol

import torch


class Learner(Protocol):
    """Something that learns in steps and can be stopped and resumed."""

    @property
    def device(self) -> torch.device: ...

    @property
    def finished(self) -> bool: ...

    def advance(self) -> bool:
        """Start another step if there is one; return whether there was."""
        ...

    def test_accuracy(self) -> Any:  # noqa: ANN401 - a share, or one for each of several models
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything that is needed to continue."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...
