// SPDX-License-Identifier: Apache-2.0
// See price_file.h.
#include "engine/session/price_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/hash.h"

enum { KEPT = 256 }; // files of a folder

static const char *base_name(const char *path) {
    const char *last = strrchr(path, '/');
    return last && last[1] ? last + 1 : path;
}

// Names, types and shapes of all tensors.
static uint64_t hash_tensors(const struct gguf *g) {
    uint64_t hash = 0;
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct tensor *t = gguf_tensor_at(g, i);
        hash = hash_bytes(t->name, strlen(t->name), hash);
        hash = hash_bytes(&t->type, sizeof t->type, hash);
        hash = hash_bytes(t->ne, sizeof t->ne, hash);
    }
    return hash;
}

static void put_draft(struct str *key, const struct price_subject *s) {
    const struct dflash_params *p = dflash_params_of(s->draft_model);
    struct stat info;
    long long bytes = stat(s->draft, &info) == 0 && S_ISREG(info.st_mode) ? info.st_size : 0;
    str_printf(key, "draft %s, %lld bytes, %s %d layers %lld wide, block %d; ", base_name(s->draft),
               bytes, p->dialect, p->n_layers, (long long)p->dim, p->block_size);
}

static void put_key(struct str *key, const struct price_subject *s) {
    str_printf(key, "coppice %s; model %s, %" PRIu64 " bytes, tensors %016" PRIx64 "; ",
               COPPICE_VERSION, base_name(gguf_path(s->model)), gguf_bytes(s->model),
               hash_tensors(s->model));
    if (s->draft_model)
        put_draft(key, s);
    str_printf(key, "%s, %d threads; keys %s, values %s", exec_label(s->x), exec_threads(s->x),
               kv_codec_of(s->codec_k)->name, kv_codec_of(s->codec_v)->name);
    if (s->slots > 0)
        str_printf(key, "; %lld slots of experts", (long long)s->slots);
    if (s->cpu_experts > 0)
        str_printf(key, "; experts of %d layers on %s with %d threads", s->cpu_experts,
                   exec_label(s->cpu), exec_threads(s->cpu));
    if (s->sparse.on)
        str_printf(key, "; sparse prompts, alpha %g, %d sinks, window %d", (double)s->sparse.alpha,
                   s->sparse.sinks, s->sparse.window);
}

struct price_experts price_experts_of(const struct gguf *g, const struct model_params *p) {
    double experts = 0, all = 0;
    if (!p->moe.experts)
        return (struct price_experts){0};
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct tensor *t = gguf_tensor_at(g, i);
        bool one_of_many = t->n_dims == 3 && t->ne[2] == p->moe.experts;
        double part = one_of_many ? (double)p->moe.used / p->moe.experts : 1;
        if (!p->tied && !strcmp(t->name, "token_embd.weight"))
            continue; // of which a row reads a row
        experts += one_of_many ? part * (double)t->bytes : 0;
        all += part * (double)t->bytes;
    }
    return (struct price_experts){p->moe.experts, p->moe.used, all > 0 ? experts / all : 0};
}

static void tell(const struct price_note *n, const struct err *e, const char *rest) {
    char sentence[sizeof e->text + 64];
    snprintf(sentence, sizeof sentence, "%s; %s", e->text, rest);
    if (n->note)
        n->note(n->arg, sentence);
}

static void forget(struct price_file *f) {
    str_fini(&f->folder);
    str_fini(&f->path);
    str_fini(&f->key);
}

void price_file_open(struct price_file *f, const char *folder, const struct price_subject *s,
                     struct price *p, const struct price_note *n) {
    struct err e = {0};
    *f = (struct price_file){0};
    str_puts(&f->folder, folder);
    put_key(&f->key, s);
    if (!f->key.failed)
        price_path(&f->path, folder, f->key.data);
    if (f->folder.failed || f->path.failed || f->key.failed) {
        forget(f);
        return;
    }
    int rc = price_load(p, f->path.data, f->key.data, &e);
    if (rc == ERR_FORMAT || rc == ERR_LIMIT)
        tell(n, &e, "what passes cost is measured anew");
}

void price_file_close(struct price_file *f, const struct price *p, const struct price_note *n) {
    struct err e = {0};
    if (f->path.len && p && price_learnt(p)) {
        int rc = file_make_folder(f->folder.data, &e);
        if (!rc)
            rc = price_save(p, f->path.data, f->key.data, &e);
        if (rc)
            tell(n, &e, "what passes cost is not kept");
        else
            file_keep_newest(f->folder.data, "price-", ".json", KEPT);
    }
    forget(f);
}
