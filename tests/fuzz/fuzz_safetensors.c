// SPDX-License-Identifier: Apache-2.0
// safetensors files: every tensor of an accepted file is found by its name and all its bytes are
// inside the file. An input of parts is a folder with an index.
#include "fuzz.h"

#include "formats/quant/quant.h"
#include "formats/safetensors.h"

static const struct {
    char letter;
    const char *name;
} files[] = {{'i', "model.safetensors.index.json"},
             {'m', "model.safetensors"},
             {'x', "a.safetensors"},
             {'y', "b.safetensors"}};

void fuzz_setup(void) {
    fuzz_folder();
}

static int open_parts(struct safetensors **s, const uint8_t *data, size_t size, struct err *e) {
    struct fuzz_part part;
    while (fuzz_part(&data, &size, &part))
        for (size_t i = 0; i < sizeof files / sizeof *files; i++)
            if (files[i].letter == part.letter)
                fuzz_folder_write(files[i].name, part.data, part.size);
    int rc = safetensors_open(s, fuzz_folder(), e);
    fuzz_folder_clear();
    return rc;
}

static int open_file(struct safetensors **s, const uint8_t *data, size_t size, struct err *e) {
    struct fuzz_file f;
    fuzz_file_open(&f, data, size);
    int rc = safetensors_open(s, f.path, e);
    fuzz_file_close(&f); // the mapping stays
    return rc;
}

void fuzz_one(const uint8_t *data, size_t size, bool fragile) {
    struct safetensors *s = NULL;
    struct err e = {0};
    int rc =
        fuzz_has_parts(data, size) ? open_parts(&s, data, size, &e) : open_file(&s, data, size, &e);
    fuzz_result(rc, &e, fragile);
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
