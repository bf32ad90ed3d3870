// SPDX-License-Identifier: Apache-2.0
// Which experts of a model were hot, kept in a file beside it (MODEL.spark), so that the next start
// fills the slots with them (ops/experts/pool.h). The file names its model, is written whole or not
// at all, and changes no bit of any output.
#ifndef COPPICE_ENGINE_SESSION_PROFILE_FILE_H
#define COPPICE_ENGINE_SESSION_PROFILE_FILE_H

#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "formats/gguf/gguf.h"

// Layers with experts, experts of each, and the hash of the model's file (content_sketch).
struct spark_subject {
    int layers, experts;
    uint64_t model;
};

void spark_path(struct str *out, const char *model);
// *heat: NULL where there is no such file, else [layers][experts], to be freed. ERR_MISMATCH: it is
// of another model; ERR_FORMAT: it is no such file, or damaged; ERR_IO, ERR_MEMORY.
int spark_read(uint32_t **heat, const char *path, const struct spark_subject *s, struct err *e);
// The same over bytes.
int spark_parse(uint32_t **heat, const void *data, size_t n, const char *path,
                const struct spark_subject *s, struct err *e);
int spark_write(const uint32_t *heat, const char *path, const struct spark_subject *s,
                struct err *e);

#endif
