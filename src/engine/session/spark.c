// SPDX-License-Identifier: Apache-2.0
// See spark.h.
#include "engine/session/spark.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "formats/content.h"

static const double EVERY = 5 * 60e3; // milliseconds

static void tell(const struct price_note *n, const struct err *e, const char *rest) {
    char sentence[sizeof e->text + 64];
    snprintf(sentence, sizeof sentence, "%s; %s", e->text, rest);
    if (n->note)
        n->note(n->arg, sentence);
}

void spark_close(struct spark *k) {
    str_fini(&k->path);
    free(k->heat);
    *k = (struct spark){0};
}

void spark_open(struct spark *k, const char *model, const struct gguf *file,
                const struct expert_classes *c, int first, const struct price_note *n) {
    struct err e = {0};
    *k = (struct spark){
        .first = first,
        .subject = {first + expert_classes_layers(c), c->experts, content_sketch(file)},
        .written = clock_ms()};
    spark_path(&k->path, model);
    int rc = k->path.failed ? err_set(&e, ERR_MEMORY, "no memory for a profile of experts")
                            : spark_read(&k->heat, k->path.data, &k->subject, &e);
    if (!rc)
        return;
    tell(n, &e, "experts are placed without it");
    spark_close(k);
}

static size_t in_front(const struct spark *k) {
    return (size_t)k->first * (size_t)k->subject.experts;
}

const uint32_t *spark_heat(const struct spark *k) {
    return k->heat ? k->heat + in_front(k) : NULL;
}

void spark_keep(struct spark *k, struct expert_store *s, bool now, const struct price_note *n) {
    struct err e = {0};
    struct expert_stats count;
    if (!k->path.len || !s || (!now && clock_ms() - k->written < EVERY))
        return;
    k->written = clock_ms();
    expert_store_stats(s, &count);
    uint32_t *heat = calloc((size_t)k->subject.layers * (size_t)k->subject.experts, sizeof *heat);
    if (heat && k->heat) // of the CPU's layers what was known stays
        memcpy(heat, k->heat, in_front(k) * sizeof *heat);
    if (heat && count.hits + count.misses != k->touched) {
        k->touched = count.hits + count.misses;
        if (expert_store_heat(s, heat + in_front(k), NULL, &e) ||
            spark_write(heat, k->path.data, &k->subject, &e)) {
            tell(n, &e, "which experts were hot is not kept");
            spark_close(k);
        }
    }
    free(heat);
}
