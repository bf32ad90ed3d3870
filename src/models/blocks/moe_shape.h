// SPDX-License-Identifier: Apache-2.0
// What a mixture of experts is made of: read from metadata by models/params.c, and run by moe.c.
#ifndef COPPICE_MODELS_BLOCKS_MOE_SHAPE_H
#define COPPICE_MODELS_BLOCKS_MOE_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

#include "ops/args/mlp.h"

struct moe_shape {
    int experts, used; // of a layer; that a row goes through. 0: the model has no experts
    int lead;          // layers before the first with experts, which are dense
    int64_t ffn;       // width of one
    int64_t shared;    // of the expert that every row goes through; 0: there is none
    bool shared_gate;  // its result is weighed by the sigmoid of a number that the row gives
    // How the router chooses (struct moe_route_args).
    enum route_score score;
    float logit_cap;  // logits are cap tanh(logit / cap), 0: as they are
    bool choice_bias; // added to the probabilities for the choice alone
    int groups, groups_used;
    bool group_best;
    bool normalise;
    float scale;
    bool scales; // of experts' weights, one each
    bool biases; // of the router's logits and of the experts' matrices
    enum activation activation;
};

#endif
