# SPDX-License-Identifier: Apache-2.0
"""Generation in many slots, and the drafting loops that measure accept lengths.

`Stream` decodes thousands of prompts at once and records, per step and slot, the token, the tapped
layers and the final hidden state: training data for the draft. The loops work on such recordings:
speculative decoding is lossless, so the committed text is the plain continuation and a loop needs
only the draft, which guesses again after every commit (chain, tree of a node budget, lookup).
"""

import heapq

import torch

from model import Slots, rms

END, TURN = 4080, 4082


def gumbel(shape, gen, device):
    u = torch.rand(shape, generator=gen, device=device).clamp_(1e-9, 1 - 1e-7)
    return -(-u.log()).log()


class Stream:
    """prompts: dict of ids [N,P], plen [N], forced [N] (total length or 0), temp [N], limit [N]."""

    def __init__(self, target, taps, prompts, slots, length, device, dtype, seed=1):
        self.t, self.taps, self.p, self.b, self.length = target, taps, prompts, slots, length
        self.slots = Slots(target, slots, length, device, dtype)
        self.device, self.dtype = device, dtype
        self.gen = torch.Generator(device=device).manual_seed(seed)
        z = lambda: torch.zeros(slots, dtype=torch.long, device=device)
        self.pos, self.pid = z(), torch.arange(slots, device=device)
        self.next = torch.full((), slots, dtype=torch.long, device=device)
        self.ids = prompts["ids"][self.pid, 0].long()
        self.noise = torch.zeros(slots, target.c.vocab, device=device)

    def one(self):
        """One step in place; returns (ids, pos, pid, taps [B,nT*D], hidden [B,D])."""
        p, last = self.p, self.p["ids"].shape[0] - 1
        ids, pos, pid = self.ids.clone(), self.pos.clone(), self.pid.clone()
        h, taps = self.forward(ids, pos, pos == 0)
        logits = self.t.head(h).float()
        temp = p["temp"][pid][:, None]
        pick = (logits + temp * self.noise).argmax(-1)
        nxt = pos + 1
        forced, plen = p["forced"][pid], p["plen"][pid]
        from_prompt = nxt < torch.where(forced > 0, forced, plen)
        tok = torch.where(
            from_prompt, p["ids"][pid, nxt.clamp(max=p["ids"].shape[1] - 1)].long(), pick
        )
        ended = ~from_prompt & ((ids == END) | (ids == TURN)) & (pos >= plen)
        done = (
            (nxt >= self.length)
            | ended
            | ((forced > 0) & (nxt >= forced))
            | (nxt >= plen + p["limit"][pid])
        )
        fresh = self.next + done.long().cumsum(0) - 1
        new = torch.where(done, fresh, pid)
        self.next.add_(done.sum())
        new_c = new.clamp(max=last)
        self.pid.copy_(new)
        self.pid.clamp_(max=last)
        self.pos.copy_(torch.where(done, torch.zeros_like(nxt), nxt))
        self.ids.copy_(torch.where(done, p["ids"][new_c, 0].long(), tok))
        return ids, pos, pid, taps, h

    def forward(self, ids, pos, fresh):
        m, s, keep, seen = self.t, self.slots, ~fresh, {}
        h = m.embed_tokens(ids)
        for i, layer in enumerate(m.layers):
            x = layer.input_layernorm(h)
            if layer.is_full:
                h = h + s.attention(i, layer.self_attn, x, pos)
            else:
                h = h + s.deltanet(i, layer.linear_attn, x, keep)
            h = h + layer.mlp(layer.post_attention_layernorm(h))
            if i in self.taps:
                seen[i] = h
        return m.norm(h), torch.cat([seen[i] for i in self.taps], -1)

    @torch.no_grad()
    def run(self, steps, deadline=None, clock=None):
        """Up to `steps` steps -> dict of ids, pos, pid [T,B], taps [T,B,nT*D], hid [T,B,D]."""
        b, d, dev = self.b, self.t.c.dim, self.device
        rec = {
            "ids": torch.zeros(steps, b, dtype=torch.int16, device=dev),
            "pos": torch.zeros(steps, b, dtype=torch.int16, device=dev),
            "pid": torch.zeros(steps, b, dtype=torch.int32, device=dev),
            "taps": torch.zeros(steps, b, len(self.taps) * d, dtype=self.dtype, device=dev),
            "hid": torch.zeros(steps, b, d, dtype=self.dtype, device=dev),
        }
        graph, out, total = None, None, self.p["ids"].shape[0]
        warm = bool((self.p["temp"] > 0).any())
        for t in range(steps):
            if warm:
                self.noise.copy_(gumbel(self.noise.shape, self.gen, dev))
            if dev == "cuda" and t == 3:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    out = self.one()
            if graph is not None:
                graph.replay()
            else:
                out = self.one()
            for k, v in zip(("ids", "pos", "pid", "taps", "hid"), out):
                rec[k][t] = v.to(rec[k].dtype)
            if t % 50 == 49 and (int(self.next) >= total + b or (deadline and clock() > deadline)):
                break
        return {k: v[: t + 1] for k, v in rec.items()}


def documents(rec, total):
    """Whole documents of a recording -> start step, slot, length, pid (numpy-free tensors)."""
    pos, pid = rec["pos"].long(), rec["pid"].long()
    t, b = pos.shape
    start = pos == 0
    idx = start.t().nonzero()  # sorted by slot, then step
    slot, t0 = idx[:, 0], idx[:, 1]
    nxt = torch.cat((t0[1:], t0.new_tensor([t])))
    same = torch.cat((slot[1:] == slot[:-1], slot.new_zeros(1, dtype=torch.bool)))
    return [x[same] for x in (t0, slot, nxt - t0, pid[t0, slot])]


def block_probs(draft, target, taps, ids, s):
    """Draft rows of one sequence: taps [S,nT*D] (rows < s used), anchor ids[s] -> log q [B-1,V]"""
    tok = target.embed_tokens(ids[s].view(1, 1))
    mask = target.embed_tokens.weight[draft.c.mask_id]
    at = torch.tensor([[s]], device=ids.device)
    h = draft(taps[None, :s].float(), at, torch.ones_like(at, dtype=torch.bool), tok, mask)
    return target.head(h[0, 0, 1:]).float().log_softmax(-1)


def lookup_guess(ids, count, longest=4):
    """Prompt lookup: the continuation of the latest earlier occurrence of the last n-gram."""
    for n in range(min(longest, len(ids) - 1), 0, -1):
        tail = ids[-n:]
        for i in range(len(ids) - n - 1, -1, -1):
            if ids[i : i + n] == tail:
                return ids[i + n : i + n + count]
    return []


def tree_walk(logq, truth, budget, top=8):
    """Best-first tree of `budget` nodes over independent marginals; matched length along truth."""
    val, tok = logq.topk(top, -1)
    val, tok = val.tolist(), tok.tolist()
    heap, nodes = [(-val[0][0], (0,))], set()
    while heap and len(nodes) < budget:
        cost, path = heapq.heappop(heap)
        nodes.add(path)
        d, r = len(path) - 1, path[-1]
        if r + 1 < top:
            heapq.heappush(heap, (cost + val[d][r] - val[d][r + 1], path[:-1] + (r + 1,)))
        if d + 1 < len(val):
            heapq.heappush(heap, (cost - val[d + 1][0], path + (0,)))
    path = ()
    for d, t in enumerate(truth[: len(val)]):
        if t not in tok[d] or path + (tok[d].index(t),) not in nodes:
            break
        path += (tok[d].index(t),)
    return len(path)


@torch.no_grad()
def accept_lengths(draft, target, taps, ids, plen, kind, noise=None, temp=0.0, budget=22):
    """Committed tokens of every target pass for one recorded continuation ids[plen:].

    Position p's choice is ids[p]. noise [L,V]: the Gumbel noise of each position, for a draft that
    perturbs its marginals with the target's own noise. The last pass is cut at the end of text.
    """
    n, s, out, lst = len(ids), plen, [], ids.tolist()
    while s < n - 1:
        truth = lst[s + 1 :]
        if kind == "lookup":
            guess = lookup_guess(lst[: s + 1], draft.c.block - 1)
        else:
            logq = block_probs(draft, target, taps, ids, s)
            if noise is not None:
                rows = noise[s + 1 : s + draft.c.block]
                logq[: len(rows)] = logq[: len(rows)] + temp * rows
            guess = logq.argmax(-1).tolist()
        if kind == "tree":
            m = tree_walk(logq, truth, budget)
        else:
            m = 0
            while m < min(len(guess), len(truth)) and guess[m] == truth[m]:
                m += 1
        out.append(min(m + 1, len(truth)))
        s += m + 1
    return out


def distinct4(ids):
    g = [tuple(ids[i : i + 4]) for i in range(len(ids) - 3)]
    return len(set(g)) / len(g) if g else 1.0


def tap_norm(x, width):
    """Root mean square of each tap of each row, broadcast over its values."""
    y = x.float().unflatten(-1, (-1, width))
    return y.pow(2).mean(-1, keepdim=True).sqrt().expand_as(y).flatten(-2)


__all__ = ["Stream", "documents", "accept_lengths", "distinct4", "tap_norm", "rms", "END", "TURN"]
