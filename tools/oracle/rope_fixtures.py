# SPDX-License-Identifier: Apache-2.0
"""Writes tests/fixtures/rope_scaling.json: radians a position of each rotary pair, and the factor
of cosines, as transformers has them for configurations that published models have.

Usage: python rope_fixtures.py [OUTPUT]
"""
import json
import os
import sys

from transformers import PretrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS


def case(name, theta, head, context, scaling, part=1.0):
    """`scaling`: the type and its numbers, as rope_parameters have them."""
    config = PretrainedConfig(
        hidden_size=head * 2, num_attention_heads=2, head_dim=head, max_position_embeddings=context,
        rope_parameters={"rope_theta": theta, "partial_rotary_factor": part} | scaling)
    angles, magnitude = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](config, "cpu")
    return {"name": name, "theta": theta, "head": head, "context": context, "part": part,
            "scaling": scaling, "magnitude": magnitude, "angles": angles.double().tolist()}


def yarn(factor, trained, **more):
    return {"rope_type": "yarn", "factor": factor,
            "original_max_position_embeddings": trained} | more


def cases():
    linear = {"rope_type": "linear", "factor": 4.0}
    return [
        case("llama", 10000.0, 64, 4096, linear),
        case("llama", 10000.0, 64, 65536, yarn(16.0, 4096)),
        case("llama", 500000.0, 128, 131072, yarn(4.0, 8192, beta_fast=64.0, beta_slow=2.0)),
        case("qwen3", 1000000.0, 128, 40960, linear),
        case("qwen3", 1000000.0, 128, 131072, yarn(4.0, 32768)),
        case("qwen3", 1000000.0, 128, 131072, yarn(4.0, 32768, truncate=False)),
        case("qwen3", 1000000.0, 128, 131072, yarn(4.0, 32768, attention_factor=1.25)),
        case("qwen35", 10000000.0, 256, 1048576, yarn(4.0, 262144), 0.25),
        case("qwen35", 10000000.0, 256, 262144, {"rope_type": "linear", "factor": 2.5}, 0.25),
        case("gemma3", 1000000.0, 256, 131072, {"rope_type": "linear", "factor": 8.0}),
        case("gemma3", 1000000.0, 128, 131072, yarn(8.0, 16384)),
    ]


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(
        here, "../../tests/fixtures/rope_scaling.json")
    with open(out, "w", encoding="utf-8") as f:
        f.write("[" + ",\n".join(json.dumps(c) for c in cases()) + "]\n")


if __name__ == "__main__":
    main()
