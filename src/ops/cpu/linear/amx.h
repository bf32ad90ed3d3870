// SPDX-License-Identifier: Apache-2.0
// What the linear layers of level amx share: how tiles are shaped. Internal to those files.
#ifndef COPPICE_OPS_CPU_LINEAR_AMX_H
#define COPPICE_OPS_CPU_LINEAR_AMX_H

#include "ops/cpu/linear/avx512.h"

// Layout that the instruction set prescribes for ldtilecfg.
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16]; // of a row of each tile
    uint8_t rows[16];
};

INLINE void tile_shape(struct tile_config *c, int tile, int rows, int bytes) {
    c->rows[tile] = (uint8_t)rows;
    c->bytes[tile] = (uint16_t)bytes;
}

INLINE void tile_configure(const struct tile_config *c) {
    __asm__ volatile("" : : "r"(c) : "memory"); // not every compiler knows that all of it is read
    _tile_loadconfig(c);
}

#endif
