"""A faster form of the audio decoder's alias-free activation, for training only.

The reference module upsamples by a transposed depthwise convolution, applies SnakeBeta and downsamples by a
strided depthwise convolution; on a GPU each of them runs far below memory speed when channels are few.
`install` replaces the module's forward by the same sums written as shifted additions, which torch.compile
turns into a few pointwise kernels. The two agree to rounding (`python3 fast_audio.py` checks it); exported
weights are not touched.
"""

from __future__ import annotations

import torch


def _shifted(x: torch.Tensor, left: int, right: int) -> torch.Tensor:
    """Replicate padding along the last axis."""
    return torch.cat(
        [x[..., :1].expand(*x.shape[:-1], left), x, x[..., -1:].expand(*x.shape[:-1], right)], -1
    )


def activation(x: torch.Tensor, alpha: torch.Tensor, beta: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
    """[B, C, L] -> [B, C, L]; alpha and beta [C] in log space, f the 12 filter taps."""
    n = x.shape[-1]
    padded = _shifted(x, 3, 3)  # padded[i] = x[i - 3]
    even, odd = 0.0, 0.0
    for j in range(6):
        even = even + f[2 * j + 1] * padded[..., 5 - j : 5 - j + n]  # x[m + 2 - j]
        odd = odd + f[2 * j] * padded[..., 6 - j : 6 - j + n]  # x[m + 3 - j]
    a, b = alpha.exp()[None, :, None], 1.0 / (beta.exp()[None, :, None] + 1e-9)
    even, odd = 2.0 * even, 2.0 * odd
    even = even + b * torch.sin(a * even) ** 2
    odd = odd + b * torch.sin(a * odd) ** 2
    # out[m] = sum_t f[t] y[2m + t - 5] with y clamped at both ends of the doubled signal.
    first, last = even[..., :1], odd[..., -1:]
    odd = torch.cat(
        [first.expand(*x.shape[:-1], 3), odd, last.expand(*x.shape[:-1], 3)], -1
    )  # odd[i] = y[2(i-3)+1]
    even = torch.cat(
        [first.expand(*x.shape[:-1], 3), even, last.expand(*x.shape[:-1], 3)], -1
    )  # even[i] = y[2(i-3)]
    out = 0.0
    for t in range(12):
        shift = (t - 5) // 2 if (t - 5) % 2 == 0 else (t - 6) // 2
        source = even if (t - 5) % 2 == 0 else odd
        out = out + f[t] * source[..., 3 + shift : 3 + shift + n]
    return out


def install(vae: torch.nn.Module, compiled: bool) -> None:
    """Replaces the forward of every alias-free activation of `vae`."""
    fn = torch.compile(activation, dynamic=True) if compiled else activation
    for module in vae.modules():
        if type(module).__name__ == "MiniMaxH3AudioActivation1d":

            def forward(x, m=module):
                return fn(x, m.act.alpha, m.act.beta, m.upsample.filter.flatten())

            module.forward = forward


def main() -> None:
    """Compares both forms, values and gradients."""
    from diffusers.models.autoencoders.autoencoder_kl_minimax_h3_audio import (
        MiniMaxH3AudioActivation1d,
        MiniMaxH3AudioSnakeBeta,
    )

    torch.manual_seed(0)
    for length in (1, 2, 3, 7, 64):
        m = MiniMaxH3AudioActivation1d(MiniMaxH3AudioSnakeBeta(5)).double()
        m.act.alpha.data.normal_()
        m.act.beta.data.normal_()
        x = torch.randn(2, 5, length, dtype=torch.float64, requires_grad=True)
        want = m(x)
        got = activation(x, m.act.alpha, m.act.beta, m.upsample.filter.flatten())
        g = torch.randn_like(want)
        ga, gb = (torch.autograd.grad(o, (x, m.act.alpha, m.act.beta), g) for o in (want, got))
        print(
            length, float((want - got).abs().max()), max(float((a - b).abs().max()) for a, b in zip(ga, gb))
        )


if __name__ == "__main__":
    main()
