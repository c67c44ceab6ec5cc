"""Loss and gradients of a training step as CUDA graphs, one for each layout.

A network of toy size keeps a GPU busy for less time than a processor needs to launch its kernels. A graph is
launched once for all of them. Shapes differ from layout to layout, so there is a graph for each; they share
one memory pool, because no two run at once. NOT here: what is computed (`flow.py`), optimisers.
"""

from __future__ import annotations

import gc
from typing import Callable, Hashable

import torch

WARM_UP = 2  # runs before capture: compilation and libraries allocate in them


class Graphs:
    """Calls a function by graphs. The gradients of its summed outputs stand in `.grad` of all parameters."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.params = list(module.parameters())
        self.grads = [torch.zeros_like(p) for p in self.params]
        self.pool, self.side = torch.cuda.graph_pool_handle(), torch.cuda.Stream()
        self.known: dict[Hashable, tuple] = {}
        gc.collect()
        gc.freeze()  # each capture collects garbage; what is there by now is none

    def __call__(self, key: Hashable, function: Callable, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """Outputs (scalars) of function(*inputs); inputs of one key have one shape, and `function` must do
        the same for one key."""
        if key not in self.known:
            self.known[key] = self._capture(function, inputs)
        graph, slots, outputs = self.known[key]
        torch._foreach_copy_(slots, inputs)
        graph.replay()
        for p, g in zip(self.params, self.grads):
            p.grad = g
        return [o.clone() for o in outputs]

    def _capture(self, function: Callable, inputs: list[torch.Tensor]):
        slots = [x.clone() for x in inputs]

        def once() -> list[torch.Tensor]:
            outputs = function(*slots)
            grads = torch.autograd.grad(sum(outputs), self.params)
            torch._foreach_copy_(self.grads, grads)
            return [o.detach() for o in outputs]

        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            for _ in range(WARM_UP):
                once()
        torch.cuda.current_stream().wait_stream(self.side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool, stream=self.side):
            outputs = once()
        return graph, slots, outputs
