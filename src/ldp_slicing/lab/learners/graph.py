"""CUDA graphs: a training step that is captured once and replayed without the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def capture(
    step: Callable[[], None],
    state: Sequence[Tensor],
    optimiser: torch.optim.Optimizer,
    generator: torch.Generator,
    stream: torch.cuda.Stream,
) -> torch.cuda.CUDAGraph:
    """Capture ``step`` as a graph. Warming up trains, so state, optimiser and generator are restored afterwards."""
    fresh = not optimiser.state
    changed = [*state, *_tensors_of(optimiser)]
    before, drawn = [tensor.detach().clone() for tensor in changed], generator.get_state()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph, stream=stream):
        step()
    with torch.no_grad():
        if fresh:  # warming up has created the momenta and counts: they start at zero
            for tensor in _tensors_of(optimiser):
                tensor.zero_()
        for tensor, value in zip(changed, before, strict=True):
            tensor.copy_(value)
    generator.set_state(drawn)
    torch.cuda.synchronize()
    return graph


def half_precision(device: torch.device) -> torch.autocast:
    """bfloat16 on a GPU. Nothing is cached, so that a step can be captured."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda", cache_enabled=False)


def _tensors_of(optimiser: torch.optim.Optimizer) -> list[Tensor]:
    return [value for state in optimiser.state.values() for value in state.values() if isinstance(value, Tensor)]
