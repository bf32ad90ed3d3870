// SPDX-License-Identifier: Apache-2.0
// What layer.cu, a whole layer of experts of few rows, asks of others. Internal to this folder.
#ifndef COPPICE_OPS_GPU_MOE_LAYER_H
#define COPPICE_OPS_GPU_MOE_LAYER_H

#include "ops/gpu/moe/moe.h"
#include "ops/gpu/moe/sum.h"

using moe_shared_args = moe_layer_args::moe_shared_args; // as it is called in C

// Queues the router's product, its choice and, with n_in 2, those of the shared expert's gate.
// False for forms and sizes that it does not take: nothing is queued.
bool moe_router_launch(struct gpu *g, const struct moe_layer_args *l);

#endif
