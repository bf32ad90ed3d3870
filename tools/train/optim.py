# SPDX-License-Identifier: Apache-2.0
"""Muon for the matrices of the layers, AdamW for everything else, in one object.

Muon (momentum, then the nearest semi-orthogonal matrix by a quintic Newton-Schulz iteration) is
scaled so that an update has a root mean square of 0.2 * lr, which makes AdamW's learning rates fit.
Matrices of one shape are stacked, so a step is a handful of batched products.
"""

import torch


def orthogonalise(g, steps=5):
    """g [n,r,c] bf16 -> about U V^T of each matrix"""
    a, b, c = 3.4445, -4.7750, 2.0315
    flip = g.shape[-2] > g.shape[-1]
    x = g.transpose(-1, -2) if flip else g
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        s = x @ x.transpose(-1, -2)
        x = a * x + (b * s + c * s @ s) @ x
    return x.transpose(-1, -2) if flip else x


class Mixed:
    def __init__(self, model, lr_matrix, lr_other, wd=0.1, momentum=0.95):
        groups, other = {}, []
        for n, p in model.named_parameters():
            small = p.dim() != 2 or "embed" in n or "codebook" in n or min(p.shape) < 64
            if small:
                other.append(p)
            else:
                groups.setdefault(tuple(p.shape), []).append(p)
        self.groups = list(groups.values())
        self.bufs = [torch.zeros(len(g), *g[0].shape, device=g[0].device) for g in self.groups]
        cuda = other[0].is_cuda
        self.adam = torch.optim.AdamW(
            other, lr=lr_other, betas=(0.9, 0.95), weight_decay=0.0, eps=1e-10, fused=cuda
        )
        self.params = [p for g in self.groups for p in g] + other
        self.lr_matrix, self.lr_other, self.wd, self.momentum = lr_matrix, lr_other, wd, momentum

    @torch.no_grad()
    def step(self, scale):
        """One update with both learning rates multiplied by scale; clears the gradients."""
        torch.nn.utils.clip_grad_norm_(self.params, 1.0)
        for group in self.adam.param_groups:
            group["lr"] = self.lr_other * scale
        self.adam.step()
        lr = self.lr_matrix * scale
        for g, buf in zip(self.groups, self.bufs):
            grad = torch.stack([p.grad for p in g])
            buf.lerp_(grad, 1 - self.momentum)
            u = orthogonalise(grad.lerp(buf, self.momentum).bfloat16()).float()
            u *= 0.2 * max(u.shape[-2:]) ** 0.5 * lr
            for p, d in zip(g, u):
                p.mul_(1 - lr * self.wd).sub_(d)
        for p in self.params:
            p.grad = None
