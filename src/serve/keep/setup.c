// SPDX-License-Identifier: Apache-2.0
// The setup that an answer was made with; see setup.h.
#include "serve/keep/setup.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/content.h"
#include "ops/kv/codec.h"

void keep_setup_of(struct keep_setup *u, const struct session *s, const struct session_options *o) {
    const struct gguf *g = session_file(s);
    const struct exec *x = model_exec(session_model(s));
    const char *path = gguf_path(g), *slash = strrchr(path, '/');
    *u = (struct keep_setup){.bytes = (int64_t)gguf_bytes(g),
                             .sketch = content_sketch(g),
                             .gpu = exec_is_device(x),
                             .sparse = o->target.sparse.on ? (double)o->target.sparse.alpha : 0,
                             .window = o->target.view.chosen ? 0 : o->target.view.window,
                             .pool = o->target.view.chosen ? o->target.view.pool : 0,
                             .cpu_experts = session_experts(s).cpu_layers};
    snprintf(u->program, sizeof u->program, "%s", COPPICE_VERSION);
    snprintf(u->file, sizeof u->file, "%s", slash ? slash + 1 : path);
    snprintf(u->device, sizeof u->device, "%s", exec_label(x));
    snprintf(u->key, sizeof u->key, "%s", kv_codec_of(session_codec(s, false))->name);
    snprintf(u->val, sizeof u->val, "%s", kv_codec_of(session_codec(s, true))->name);
    struct str positions = {0};
    rope_options_print(&o->target.rope, &positions);
    if (positions.len && !positions.failed)
        snprintf(u->positions, sizeof u->positions, "%s", positions.data);
    str_fini(&positions);
}

void keep_setup_write(struct json_writer *w, const struct keep_setup *u) {
    char sketch[17];
    snprintf(sketch, sizeof sketch, "%016llx", (unsigned long long)u->sketch);
    jw_key_str(w, "program", u->program);
    jw_key_begin(w, "setup", '{');
    jw_key_str(w, "file", u->file);
    jw_key_int(w, "bytes", u->bytes);
    jw_key_str(w, "sketch", sketch);
    jw_key_str(w, "device", u->device);
    jw_key_bool(w, "gpu", u->gpu);
    jw_key_str(w, "kv_type_k", u->key);
    jw_key_str(w, "kv_type_v", u->val);
    if (u->positions[0])
        jw_key_str(w, "positions", u->positions);
    jw_key_num(w, "sparse_prefill", u->sparse);
    if (u->window)
        jw_key_int(w, "fa_window", u->window);
    if (u->pool)
        jw_key_int(w, "kv_pool", u->pool);
    jw_key_int(w, "cpu_experts", u->cpu_experts);
    jw_end(w, '}');
}

int keep_setup_read(struct keep_setup *u, const struct json *line, struct err *e) {
    const struct json *v = json_get(line, "setup");
    const struct {
        const char *key;
        char *to;
        size_t size;
    } words[] = {{"file", u->file, sizeof u->file},
                 {"device", u->device, sizeof u->device},
                 {"kv_type_k", u->key, sizeof u->key},
                 {"kv_type_v", u->val, sizeof u->val}};
    size_t n;
    *u = (struct keep_setup){.bytes = json_int(json_get(v, "bytes"), 0),
                             .gpu = json_bool(json_get(v, "gpu"), false),
                             .sparse = json_num(json_get(v, "sparse_prefill"), 0),
                             .window = json_int(json_get(v, "fa_window"), 0),
                             .pool = json_int(json_get(v, "kv_pool"), 0),
                             .cpu_experts = json_int(json_get(v, "cpu_experts"), 0)};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const char *s = json_str(json_get(v, words[i].key), &n);
        if (!s)
            return err_set(e, ERR_FORMAT, "its setup has no %s", words[i].key);
        snprintf(words[i].to, words[i].size, "%s", s);
    }
    const char *positions = json_str(json_get(v, "positions"), &n);
    snprintf(u->positions, sizeof u->positions, "%s", positions ? positions : "");
    const char *program = json_str(json_get(line, "program"), &n);
    snprintf(u->program, sizeof u->program, "%s", program ? program : "");
    const char *sketch = json_str(json_get(v, "sketch"), &n);
    if (!sketch)
        return err_set(e, ERR_FORMAT, "its setup has no sketch of the model's file");
    u->sketch = strtoull(sketch, NULL, 16);
    return 0;
}

// The label without the number of a GPU among those of its machine.
static const char *kind_of_device(const struct keep_setup *u) {
    const char *kind = u->gpu ? strchr(u->device, '(') : NULL;
    return kind ? kind : u->device;
}

int keep_setup_check(const struct keep_setup *made, const struct keep_setup *now, struct err *e) {
    if (made->sketch != now->sketch || made->bytes != now->bytes)
        return err_set(
            e, ERR_MISMATCH,
            "it is of another model file, %s of %lld bytes; this one is %s of %lld bytes",
            made->file, (long long)made->bytes, now->file, (long long)now->bytes);
    if (strcmp(made->key, now->key) != 0 || strcmp(made->val, now->val) != 0)
        return err_set(e, ERR_MISMATCH,
                       "keys and values were stored as %s and %s and are %s and %s here: give "
                       "--kv-type-k %s --kv-type-v %s",
                       made->key, made->val, now->key, now->val, made->key, made->val);
    if (strcmp(made->positions, now->positions) != 0)
        return err_set(e, ERR_MISMATCH, "positions turned as %s %s: give the same",
                       made->positions[0] ? "with" : "the file says,",
                       made->positions[0] ? made->positions : "without --rope-* and --yarn-*");
    if (fabs(made->sparse - now->sparse) > 1e-6)
        return err_set(e, ERR_MISMATCH, "prompts were read with --sparse-prefill %g: give the same",
                       made->sparse);
    if (made->window != now->window)
        return err_set(e, ERR_MISMATCH, "replies were made with --fa-window %lld: give the same",
                       (long long)made->window);
    if (made->pool != now->pool)
        return err_set(e, ERR_MISMATCH,
                       "replies were made with --kv-pool %lld --kv-pool-policy qk: give the same",
                       (long long)made->pool);
    if (made->cpu_experts != now->cpu_experts)
        return err_set(e, ERR_MISMATCH,
                       "experts of %lld layers were computed by the CPU: give --cpu-experts %lld",
                       (long long)made->cpu_experts, (long long)made->cpu_experts);
    if (made->gpu != now->gpu || (now->gpu && strcmp(kind_of_device(made), kind_of_device(now))))
        return err_set(e, ERR_MISMATCH,
                       "it was made on %s, and this is %s: logits of two kinds of devices have "
                       "other bits",
                       made->device, now->device);
    return 0;
}
