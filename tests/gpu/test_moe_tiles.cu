// SPDX-License-Identifier: Apache-2.0
// Shared memory of the kernels for experts of many entries, without a GPU: whatever the form, a
// block of the tiles that are chosen finds room on all GPUs of a path, and tiles are whole where
// there is room for them.
#include <stdio.h>

#include "ops/gpu/moe/moe.h"

enum { ENTRIES = 256 /* bytes of shared memory that the kernel has besides what it requests */ };

static const struct kind {
    const char *name;
    bool small, whole; // whole: has room for whole tiles of all forms
    int shared;        // bytes that a block may have
} kinds[] = {{"7.5", true, true, 64 << 10},
             {"8.6, 8.9, 12.0", false, false, 99 << 10},
             {"8.0, 8.7", false, true, 163 << 10},
             {"9.0, 10.0", false, true, 227 << 10}};

int main(void) {
    int passed = 0, failed = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct kind *k = &kinds[i];
        for (int form = 0; form < WEIGHT_FORMS; form++) {
            const int rows = moe_tile_rows(form, k->small, k->shared);
            const int bytes = moe_tile_bytes(form, k->small, rows) + ENTRIES;
            const bool ok = bytes > ENTRIES && bytes <= k->shared && rows <= MOE_TILE_ROWS &&
                            (!k->whole || rows == MOE_TILE_ROWS);
            passed += ok;
            failed += !ok;
            if (!ok)
                printf("FAIL   form %d on GPUs of %s: tiles of %d entries take %d bytes of %d\n",
                       form, k->name, rows, bytes, k->shared);
        }
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
