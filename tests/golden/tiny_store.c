// SPDX-License-Identifier: Apache-2.0
// The weight formula of tools/oracle/tiny_model.py in C, and a small safetensors writer for it.
// Every value is computed in double and rounded once, so both languages give the same bits. Only
// what the tests need is written: F32, one file, no metadata.
#include "golden/tiny_store.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/json.h"
#include "base/vec.h"

struct recipe {
    uint64_t hash; // of seed and name
    double mean, std;
    bool log_uniform;
};

static uint64_t fnv1a(const char *name) {
    uint64_t h = 0xCBF29CE484222325u;
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 0x100000001B3u;
    return h;
}

static bool ends_with(const char *s, const char *tail) {
    size_t n = strlen(s), m = strlen(tail);
    return n >= m && memcmp(s + n - m, tail, m) == 0;
}

static struct recipe recipe_of(const struct tiny_seed *from, const char *name, int64_t last) {
    struct recipe r = {.hash = fnv1a(name) ^ from->seed};
    if (ends_with(name, "A_log")) {
        r.log_uniform = true;
    } else if (ends_with(name, "base_kernel")) {
        r.mean = 0.5;
        r.std = 0.3;
    } else if (ends_with(name, "codebook") || ends_with(name, "markov_w1.weight") ||
               ends_with(name, "markov_w2.weight")) {
        r.std = 0.5;
    } else if (from->gemma && ends_with(name, "q_norm.weight")) {
        r.mean = 0.3;
        r.std = 0.06;
    } else if (ends_with(name, "layer_scalar") || ends_with(name, "scale")) {
        r.mean = 1.0;
        r.std = 0.2;
    } else if (ends_with(name, "norm.weight") || ends_with(name, "norm_1.weight") ||
               ends_with(name, "norm_2.weight") || strstr(name, "_norms.")) {
        r.mean = from->plain_norms || ends_with(name, "linear_attn.norm.weight") ? 1.0 : 0.0;
        r.std = 0.2;
    } else if (ends_with(name, "conv1d.weight")) {
        r.std = 0.3;
    } else if (ends_with(name, "dt_bias")) {
        r.mean = from->dt_mean;
        r.std = 1.0;
    } else if (ends_with(name, ".bias") || ends_with(name, "_proj_bias")) {
        r.std = 0.5;
    } else if (ends_with(name, "sinks")) {
        r.std = 1.0;
    } else if (!from->gemma && ends_with(name, "embed_tokens.weight")) {
        r.std = 1.0;
    } else {
        r.std = 1.0 / sqrt((double)last);
    }
    return r;
}

static float value(const struct recipe *r, int64_t i) {
    uint64_t u = r->hash + ((uint64_t)i + 1) * 0x9E3779B97F4A7C15u;
    u = (u ^ (u >> 30)) * 0xBF58476D1CE4E5B9u;
    u = (u ^ (u >> 27)) * 0x94D049BB133111EBu;
    u ^= u >> 31;
    if (r->log_uniform)
        return (float)log(0.01 + 15.99 * ((double)(u >> 11) * 0x1p-53));
    int sum =
        (int)(u & 0xFFFF) + (int)(u >> 16 & 0xFFFF) + (int)(u >> 32 & 0xFFFF) + (int)(u >> 48);
    return (float)(r->mean + r->std * ((sum - 131070) / 37837.0));
}

float tiny_weight(const struct tiny_seed *from, const char *name, int64_t last, int64_t i) {
    struct recipe r = recipe_of(from, name, last);
    return value(&r, i);
}

struct tiny_tensor *tiny_store_add(struct tiny_store *s, const char *prefix, const char *suffix,
                                   const int64_t shape[TINY_MAX_DIMS]) {
    if (vec_reserve(&s->items, &s->cap, (int64_t)s->count + 1, sizeof *s->items, NULL)) {
        s->failed = true;
        return NULL;
    }
    struct tiny_tensor *t = &s->items[s->count++];
    memset(t, 0, sizeof *t);
    (void)snprintf(t->name, sizeof t->name, "%s%s", prefix, suffix);
    memcpy(t->stored, t->name, sizeof t->stored);
    while (t->n_dims < TINY_MAX_DIMS && shape[t->n_dims] > 0) {
        t->shape[t->n_dims] = shape[t->n_dims];
        t->n_dims++;
    }
    return t;
}

static int64_t elements(const struct tiny_tensor *t) {
    int64_t n = 1;
    for (int d = 0; d < t->n_dims; d++)
        n *= t->shape[d];
    return n;
}

// Which tokens the rows of an EAGLE-3 draft's head are of: every other one, counted from 1.
static bool is_list(const struct tiny_tensor *t) {
    return strcmp(t->name, "d2t") == 0;
}

static void header(const struct tiny_store *s, struct json_writer *w) {
    int64_t at = 0;
    jw_begin(w, '{');
    for (size_t i = 0; i < s->count; i++) {
        const struct tiny_tensor *t = &s->items[i];
        jw_key(w, t->stored);
        jw_begin(w, '{');
        jw_key_str(w, "dtype", is_list(t) ? "I64" : "F32");
        jw_key(w, "shape");
        jw_begin(w, '[');
        for (int d = 0; d < t->n_dims; d++)
            jw_int(w, t->shape[d]);
        jw_end(w, ']');
        jw_key(w, "data_offsets");
        jw_begin(w, '[');
        jw_int(w, at);
        jw_int(w, at += (is_list(t) ? 8 : 4) * elements(t));
        jw_end(w, ']');
        jw_end(w, '}');
    }
    jw_end(w, '}');
    while (w->out.len % 8 != 0)
        str_putc(&w->out, ' ');
}

static bool put_list(FILE *f, int64_t n) {
    bool ok = true;
    for (int64_t i = 0; ok && i < n; i++) {
        const int64_t above = i + 1;
        ok = fwrite(&above, sizeof above, 1, f) == 1;
    }
    return ok;
}

static bool put_values(FILE *f, const struct tiny_tensor *t, const struct tiny_seed *from) {
    struct recipe r = recipe_of(from, t->name, t->shape[t->n_dims - 1]);
    float buffer[1024];
    if (is_list(t))
        return put_list(f, elements(t));
    for (int64_t i = 0, n = elements(t); i < n;) {
        int64_t m = n - i < 1024 ? n - i : 1024;
        for (int64_t j = 0; j < m; j++)
            buffer[j] = value(&r, i + j);
        if (fwrite(buffer, sizeof *buffer, (size_t)m, f) != (size_t)m)
            return false;
        i += m;
    }
    return true;
}

int tiny_store_write(const struct tiny_store *s, const char *path, const struct tiny_seed *from,
                     struct err *e) {
    struct json_writer w = {0};
    header(s, &w);
    FILE *f = s->failed || w.out.failed ? NULL : fopen(path, "wb");
    uint64_t n = w.out.len;
    bool ok = f && fwrite(&n, sizeof n, 1, f) == 1 && fwrite(w.out.data, 1, n, f) == n;
    for (size_t i = 0; ok && i < s->count; i++)
        ok = put_values(f, &s->items[i], from);
    if (f && fclose(f) != 0)
        ok = false;
    str_fini(&w.out);
    return ok ? 0 : err_set(e, ERR_IO, "cannot write %s: %s", path, strerror(errno));
}

int tiny_write_text(const char *dir, const char *name, const struct str *text, struct err *e) {
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = text->failed ? NULL : fopen(path, "wb");
    bool ok = f && fwrite(text->data, 1, text->len, f) == text->len;
    if (f && fclose(f) != 0)
        ok = false;
    return ok ? 0 : err_set(e, ERR_IO, "cannot write %s: %s", path, strerror(errno));
}

void tiny_store_fini(struct tiny_store *s) {
    free(s->items);
    *s = (struct tiny_store){0};
}
