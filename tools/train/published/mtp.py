# SPDX-License-Identifier: Apache-2.0
"""Trains a prediction block (multi-token prediction) for a target of the architecture qwen35, from its GGUF file.

usage: mtp.py TARGET.gguf OUT_DIR [--passes N] [--texts-from DIR] [--keep] [--resume DIR] [--tiny] [options of train.py]
       torchrun --standalone --nproc-per-node GPUS mtp.py ...
       mtp.py TARGET.gguf OUT_DIR --folder DIR   (no training: target and block as a folder for `coppice convert`)

The block is one layer of the target's own form behind its last one; the target is frozen. Each step unrolls a chain of
--passes guesses from every row, whose hidden states are the block's own from the second on, as in use. OUT_DIR/block has
its weights, written anew every minute, and log.json with the figures.
"""

import json
import pathlib
from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

import train
from train import HeadLoss, rows_loss, say

import export
import hybrid
import measure
from loops import tap_norm
from model import PredictionBlock


def losses(a, target, block, fn, texts, noise, user):
    passes, dim = a.passes, target.dim
    x, anchor, labels, ok, flat, hid, _ = texts.draw(a.texts, a.anchors, passes + 1, user, ())
    wanted = hid.gather(1, (flat - 1)[..., None].expand(-1, -1, dim)).view(-1, passes, dim)
    known = hid.float()
    known = known + (torch.rand_like(known) - 0.5) * noise * tap_norm(known, dim)
    tok = target.embed[F.pad(x[:, 1:], (0, 1))]
    with target.amp():
        out = a.unrolled(block, tok, known.to(target.dtype), passes)
    at = (anchor - 1).clamp(min=0)  # the row whose guess comes behind the anchor
    rows = [g.gather(1, (at + j).clamp(max=x.shape[1] - 1)[..., None].expand(-1, -1, dim)) for j, g in enumerate(out)]
    h = torch.stack(rows, 2).to(target.dtype).flatten(0, 1)
    return HeadLoss.apply(h, wanted, target.head, labels.flatten(0, 1), ok.flatten(0, 1), fn, a.slice)[:2]


def guesses(target, block, passes, x, anchor, truth, hid, raw):
    """-> the chain's guesses, of `passes` tokens, as train.guesses"""
    tok, dim = target.embed[F.pad(x[:, 1:], (0, 1))], target.dim
    with target.amp():
        out = block(tok, hid.to(target.dtype), passes)
    at = (anchor - 1).clamp(min=0)
    h = [g.gather(1, (at + j).clamp(max=x.shape[1] - 1)[..., None].expand(-1, -1, dim)) for j, g in enumerate(out)]
    logits = train.scores(torch.stack(h, 2).to(target.dtype).flatten(0, 1), target.head)
    return logits.argmax(-1).view(*anchor.shape, passes)


def unroll(block, tok, hid, passes):
    return block(tok, hid, passes)


def folder(target, block, path, out):
    """The target as HuggingFace has it, with its block; 32-bit floats, which Q8_0 rounds to what they came from."""
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    tok, _ = hybrid.tokenizer(path)
    tok.save(str(out / "tokenizer.json"))
    (out / "tokenizer_config.json").write_text(json.dumps(hybrid.tokenizer_config(path), indent=1))
    export.export_target(target.m, None, out, exact=True, block=block)


def main():
    a = train.arguments([("--passes", int, "guesses of an unrolled chain (default 5)"),
                         ("--folder", str, "write target and block here, without training")])  # fmt: skip
    a.passes = a.passes or (3 if a.tiny else 5)
    out = pathlib.Path(a.out) / "block"
    target, rank, ranks = train.start(a)
    if not isinstance(target, hybrid.Target):
        raise SystemExit(f"{a.target}: prediction blocks are trained for the architecture qwen35 only")
    block = PredictionBlock(target.c).to(target.device)
    if a.resume or a.folder:
        block.load_state_dict(load_file(f"{a.resume or a.out}/block/model.safetensors"))
    if a.folder:
        folder(target, block, a.target, a.folder)
        return
    say("parameters", sum(p.numel() for p in block.parameters()), target.device.type)
    prompts = measure.read(a, target, rank, ())
    texts, facts = train.gather(a, target, rank, ranks, ())
    fn, a.unrolled = partial(rows_loss, top=0, soft=a.soft), unroll
    if train.compiled(a, target):
        fn, a.unrolled = torch.compile(fn, dynamic=False), torch.compile(unroll, dynamic=False)
    write = lambda part: save_file(export.state(block), str(part / "model.safetensors"), {"format": "pt"})
    save = train.saver(a, out, facts, write, prompts, partial(guesses, target, block, a.passes))
    train.train(a, target, block, texts, fn, losses, save)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
