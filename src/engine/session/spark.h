// SPDX-License-Identifier: Apache-2.0
// The profile of a session's experts: read before they are placed, written now and then while the
// session is used and when it closes.
#ifndef COPPICE_ENGINE_SESSION_SPARK_H
#define COPPICE_ENGINE_SESSION_SPARK_H

#include "engine/session/price_file.h"
#include "engine/session/profile_file.h"
#include "ops/experts/store.h"

// Zeroed: nothing is kept.
struct spark {
    struct str path;
    struct spark_subject subject;
    uint32_t *heat;   // what was read, of all layers; NULL: nothing
    int first;        // layer whose experts are the device's, and all behind it
    double written;   // clock_ms of the newest file
    uint64_t touched; // hits and misses by then
};

// For a model whose slots are c; the experts of `first` layers in front of them are the CPU's. A
// file that cannot be used is told and left alone: then nothing is kept.
void spark_open(struct spark *k, const char *model, const struct gguf *file,
                const struct expert_classes *c, int first, const struct price_note *n);
// What is known of the device's layers (expert_store_seal); NULL: nothing.
const uint32_t *spark_heat(const struct spark *k);
// Writes what is hot now, if anything was used since and the newest file is some minutes old, or if
// `now`. This waits for the device.
void spark_keep(struct spark *k, struct expert_store *s, bool now, const struct price_note *n);
void spark_close(struct spark *k);

#endif
