"""Muon for the matrices of a network, all matrices of one shape at once.

`torch.optim.Muon` (same rule, same names of state) treats one matrix after the other: some 25 small kernels
each, so that for a network of toy size the processor that launches them is what training waits for. Here one
batched product serves all matrices of a shape. `tests/tools/tiny_training_test.py` holds the two together.
"""

from __future__ import annotations

import math
from typing import Iterable

import torch

COEFFICIENTS, ROUNDS = (3.4445, -4.775, 2.0315), 5  # of the iteration that sends singular values to about one


def orthogonal(m: torch.Tensor) -> torch.Tensor:
    """[N, A, B] -> the nearest (semi-)orthogonal matrices, roughly, in bf16."""
    a, b, c = COEFFICIENTS
    x = m.bfloat16()
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp_min(1e-7)
    for _ in range(ROUNDS):
        gram = torch.bmm(x, x.mT)
        update = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        x = torch.baddbmm(x, update, x, beta=a)
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Steps are scaled to the size of Adam's at the same learning rate."""

    def __init__(
        self, params: Iterable[torch.Tensor], lr: float, weight_decay: float = 0.01, momentum: float = 0.95
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure=None) -> None:
        """One update of every matrix that has a gradient."""
        for group in self.param_groups:
            shapes: dict[torch.Size, list[torch.Tensor]] = {}
            for p in group["params"]:
                if p.grad is not None:
                    shapes.setdefault(p.shape, []).append(p)
            for params in shapes.values():
                self._update(params, group)

    def _update(self, params: list[torch.Tensor], group: dict) -> None:
        """Matrices of one shape."""
        for p in params:
            if "momentum_buffer" not in self.state[p]:
                self.state[p]["momentum_buffer"] = torch.zeros_like(p)
        moments, grads = [self.state[p]["momentum_buffer"] for p in params], [p.grad for p in params]
        torch._foreach_lerp_(moments, grads, 1 - group["momentum"])
        ahead = torch._foreach_lerp(grads, moments, group["momentum"])
        ways = orthogonal(torch.stack(list(ahead))).float().unbind()
        size = 0.2 * math.sqrt(max(params[0].shape))
        torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(params, list(ways), alpha=-group["lr"] * size)
