// SPDX-License-Identifier: Apache-2.0
// Which slots of experts a model lends, and for what (ops/experts/loan.h): a part of its options.
#ifndef COPPICE_MODELS_LENDING_H
#define COPPICE_MODELS_LENDING_H

#include <stdint.h>

enum { MODEL_ROOMS = 6 }; // workspaces for passes of different numbers of rows

struct model_lending {
    int64_t own;    // what the workspace of max_rows takes, if it lies between the slots; else 0
    int64_t scorer; // bytes that model_vacate gives
    // Passes of more rows than max_rows, ever more, whose workspace lies in the place of slots
    // while they run; all of it takes `bytes` of each.
    int n;
    struct {
        int rows;
        int64_t bytes;
    } pass[MODEL_ROOMS - 1];
};

#endif
