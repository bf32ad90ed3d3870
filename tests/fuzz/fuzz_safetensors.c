// SPDX-License-Identifier: Apache-2.0
// safetensors files: every tensor of an accepted file is found by its name and all its bytes are
// inside the file.
#include "fuzz.h"

#include "formats/quant.h"
#include "formats/safetensors.h"

void fuzz_setup(void) {
}

void fuzz_one(const uint8_t *data, size_t size, bool fragile) {
    struct safetensors *s = NULL;
    struct err e = {0};
    int rc = safetensors_open_memory(&s, data, size, &e);
    FUZZ_CHECK(rc == 0 || e.text[0]);
    FUZZ_CHECK(fragile || rc != ERR_MEMORY);
    if (rc)
        return;
    for (size_t i = 0; i < safetensors_count(s); i++) {
        const struct tensor *t = safetensors_at(s, i);
        FUZZ_CHECK(quant_format(t->type) && safetensors_tensor(s, t->name) != NULL);
        volatile unsigned char sum = 0;
        for (int64_t k = 0; k < t->bytes; k++)
            sum = (unsigned char)(sum + ((const unsigned char *)t->data)[k]);
    }
    safetensors_close(s);
}
