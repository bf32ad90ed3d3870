// SPDX-License-Identifier: Apache-2.0
// Thin checks over the typed reads of formats/gguf/gguf.h.
#include "models/meta.h"

#include <math.h>

int meta_int(const struct gguf *g, const char *key, int64_t lo, int64_t hi, int64_t otherwise,
             int64_t *out, struct err *e) {
    int rc = gguf_get_int(g, key, lo, hi, otherwise, out, e);
    if (!rc && *out < lo)
        return err_set(e, ERR_FORMAT, "metadata key %s is missing; the file is incomplete", key);
    return rc;
}

// A positive finite float; `otherwise` 0 means that the key is required.
int meta_positive(const struct gguf *g, const char *key, double otherwise, float *out,
                  struct err *e) {
    double v;
    int rc = gguf_get_float(g, key, otherwise, &v, e);
    if (rc)
        return rc;
    if (!(otherwise > 0) && !gguf_find(g, key))
        return err_set(e, ERR_FORMAT, "metadata key %s is missing; the file is incomplete", key);
    *out = (float)v;
    if (!(v > 0) || !isfinite(*out))
        return err_set(e, ERR_FORMAT, "metadata key %s is %g; a positive number is needed", key, v);
    return 0;
}

// Heads may be one number or an array over the blocks, in which recurrent layers have 0.
int meta_heads(const struct gguf *g, const char *key, int64_t blocks, int *out, struct err *e) {
    const struct gguf_kv *kv = gguf_find(g, key);
    int64_t v = 0;
    if (!kv || kv->kind != GGUF_ARRAY) {
        int rc = meta_int(g, key, 1, 4096, 0, &v, e);
        *out = (int)v;
        return rc;
    }
    if (kv->count != (uint64_t)blocks || kv->elem == GGUF_STRING || kv->elem == GGUF_F32 ||
        kv->elem == GGUF_F64)
        return err_set(e, ERR_FORMAT, "metadata key %s must have %lld integers", key,
                       (long long)blocks);
    for (uint64_t i = 0; i < kv->count; i++) {
        int64_t n = gguf_array_int(kv, i);
        if (n < 0 || n > 4096 || (v && n && n != v))
            return err_set(e, ERR_UNSUPPORTED,
                           "metadata key %s has %lld heads in layer %llu; all attention layers "
                           "must have the same number",
                           key, (long long)n, (unsigned long long)i);
        v = n ? n : v;
    }
    *out = (int)v;
    return v ? 0 : err_set(e, ERR_FORMAT, "metadata key %s names no heads", key);
}

int meta_of_layer(const struct gguf *g, const char *key, int64_t n, int64_t i, int64_t hi,
                  int64_t *out, struct err *e) {
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv || kv->kind != GGUF_ARRAY)
        return meta_int(g, key, 1, hi, 0, out, e);
    if (kv->count != (uint64_t)n || kv->elem == GGUF_STRING || kv->elem == GGUF_F32 ||
        kv->elem == GGUF_F64)
        return err_set(e, ERR_FORMAT, "metadata key %s must have %lld integers", key, (long long)n);
    *out = gguf_array_int(kv, (uint64_t)i);
    if (*out >= 1 && *out <= hi)
        return 0;
    return err_set(e, ERR_FORMAT, "metadata key %s has %lld in layer %lld; allowed are 1 to %lld",
                   key, (long long)*out, (long long)i, (long long)hi);
}
