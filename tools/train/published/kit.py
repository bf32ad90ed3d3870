# SPDX-License-Identifier: Apache-2.0
"""One of three trainings in one command, on all GPUs that there are, with nothing but a folder of inputs: for a machine
without internet that is lent for ten minutes.

usage: kit.py draft|block|draft2 INPUTS OUT [--until SECONDS] [options of train.py or mtp.py, which come last]

draft: a DFlash draft for SmolLM2-135M-Instruct; INPUTS has smollm2.gguf (or its pieces smollm2.gguf.*), prompts/*.jsonl
and perhaps start.gguf, a draft that is trained on.
block, draft2: a prediction block and a DFlash2 draft for the bundled target; INPUTS has tiny.gguf, data (of
redraft_data.py), prompts/*.jsonl, and for draft2 start.gguf, the target's DFlash draft.

OUT gets the newest weights while training goes on, in pieces of at most 15 MiB (`cat model.safetensors.*` joins them),
with config.json and log.json. They lie whole in coppice-draft, -block or -draft2 of the folder for temporary files, which
--resume can name. Needed: torch, numpy, gguf, safetensors, tokenizers.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import torch

HERE = pathlib.Path(__file__).parent
PIECE = 15 << 20
TINY = "--length 512 --keep --texts 64 --anchors 64 --slice 1024 --gen-seconds 60 --until 540"
KINDS = {  # script, folder that it writes, target, options
    "draft": ("train.py", "draft", "smollm2.gguf",
              "--rows 4096 --length 512 --long 2048 --texts 32 --anchors 32 --gen-seconds 130 --until 540 --lr 1.5e-3 --soft 0.6 --seed 3"),
    "block": ("mtp.py", "block", "tiny.gguf", TINY),
    "draft2": ("train.py", "draft", "tiny.gguf", f"{TINY} --conv 2 --rank 32 --layers 3 --heads 4 --kv-heads 2 "
               "--head-dim 128 --ffn 512 --taps 1,5,9 --mask 4085"),
}  # fmt: skip


def joined(path, work):
    """The file, or its pieces as one file in `work`"""
    pieces = sorted(path.parent.glob(f"{path.name}.*"))
    if path.exists() or not pieces:
        return path
    whole = work / path.name
    with whole.open("wb") as out:
        for piece in pieces:
            with piece.open("rb") as part:
                shutil.copyfileobj(part, out)
    return whole


def copy_new(source, out, seen):
    """Copies what is newer than `seen`, {name: time}; files come whole, by renaming."""
    for path in source.glob("*"):
        at = path.stat().st_mtime
        if seen.get(path.name) == at or source.with_suffix(".part").exists():
            continue
        seen[path.name] = at
        data = path.read_bytes()
        for i in range(0, max(1, len(data)), PIECE):
            name = path.name if path.suffix == ".json" else f"{path.name}.{i // PIECE:02}"
            (out / name).write_bytes(data[i : i + PIECE])


def command(kind, inputs, work, more):
    script, _, name, options = KINDS[kind]
    target, start = joined(inputs / name, work), inputs / "start.gguf"
    if not target.exists():
        raise SystemExit(f"{target} is missing: put the target there, whole or in pieces {name}.00, {name}.01, ...")
    gpus = torch.cuda.device_count()
    run = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={gpus}"] if gpus > 1 else []
    out = [sys.executable, *run, HERE / script, target, work, *options.split()]
    if kind != "draft":
        out += ["--texts-from", inputs / "data"]
    if (inputs / "prompts").exists():
        out += ["--prompts", inputs / "prompts"]
    if kind != "block" and start.exists():
        out += ["--resume", start]
    print(f"{gpus} GPUs:", *out, *more, flush=True)
    return [str(x) for x in out] + more


def main():
    if len(sys.argv) < 4 or sys.argv[1] not in KINDS:
        raise SystemExit(__doc__)
    kind, inputs, out, more = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]), sys.argv[4:]
    work, seen = pathlib.Path(tempfile.gettempdir()) / f"coppice-{kind}", {}
    out.mkdir(parents=True, exist_ok=True)
    work.mkdir(exist_ok=True)
    source = work / KINDS[kind][1]
    training = subprocess.Popen(command(kind, inputs, work, more), env=os.environ | {"PYTHONUNBUFFERED": "1"})
    while training.poll() is None:
        time.sleep(2)
        copy_new(source, out, seen)
    copy_new(source, out, seen)
    raise SystemExit(training.returncode)


if __name__ == "__main__":
    main()
