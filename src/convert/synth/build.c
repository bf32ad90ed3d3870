// SPDX-License-Identifier: Apache-2.0
// Lists the tensors of a file of random weights; see impl.h.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/vec.h"
#include "convert/synth/impl.h"

static struct synth_tensor *add(struct synth_builder *b, int layer, const char *name) {
    struct synth_list *l = b->list;
    if (vec_reserve(&l->items, &l->cap, l->n + 1, sizeof *l->items, NULL)) {
        l->failed = true;
        return NULL;
    }
    struct synth_tensor *t = &l->items[l->n++];
    *t = (struct synth_tensor){.n_dims = 1, .ne = {1, 1, 1}};
    if (layer < 0)
        snprintf(t->name, sizeof t->name, "%s", name);
    else
        snprintf(t->name, sizeof t->name, "blk.%d.%s", layer, name);
    return t;
}

void synth_vector(struct synth_builder *b, int layer, const char *name, int64_t n, float mean,
                  float half) {
    struct synth_tensor *t = add(b, layer, name);
    if (!t)
        return;
    t->ne[0] = n;
    t->mean = mean;
    t->half = half;
}

void synth_matrix(struct synth_builder *b, int layer, const char *name, int64_t k, int64_t m,
                  double size) {
    struct synth_tensor *t = add(b, layer, name);
    if (!t)
        return;
    t->n_dims = 2;
    t->ne[0] = k;
    t->ne[1] = m;
    t->half = (float)(size * sqrt(3.0 / (double)k));
    if (convert_eligible(t->name, 2))
        t->type = convert_type(&b->model, &(struct convert_matrix){t->name, k, 1, 0});
}

void synth_experts(struct synth_builder *b, int layer, const char *name, const int64_t shape[3]) {
    struct synth_tensor *t = add(b, layer, name);
    if (!t)
        return;
    t->n_dims = 3;
    memcpy(t->ne, shape, sizeof t->ne);
    t->half = (float)sqrt(3.0 / (double)t->ne[0]);
    t->type = convert_type(&b->model, &(struct convert_matrix){t->name, t->ne[0], t->ne[2], 0});
}

void synth_biases(struct synth_builder *b, int layer, const char *name, int64_t n, int64_t m) {
    struct synth_tensor *t = add(b, layer, name);
    if (!t)
        return;
    t->n_dims = 2;
    t->ne[0] = n;
    t->ne[1] = m;
    t->half = 0.1f;
}

void synth_norm(struct synth_builder *b, int layer, const char *name, int64_t n) {
    synth_vector(b, layer, name, n, 1, 0.2f);
}

void synth_norms(struct synth_builder *b, const char *name, int64_t n, int64_t rows) {
    struct synth_tensor *t = add(b, -1, name);
    if (!t)
        return;
    t->n_dims = 2;
    t->ne[0] = n;
    t->ne[1] = rows;
    t->mean = 1;
    t->half = 0.2f;
}
