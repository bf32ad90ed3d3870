// SPDX-License-Identifier: Apache-2.0
// Prices by a key that names everything they depend on, then profiles of experts.
#include "engine/session/learned.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "formats/content.h"

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

static void put_draft(struct str *key, const char *path, const struct draft *draft) {
    struct stat info;
    if (path == DRAFT_OF_TARGET) {
        str_puts(key, "draft of the model's file, ");
    } else {
        long long bytes = stat(path, &info) == 0 && S_ISREG(info.st_mode) ? info.st_size : 0;
        str_printf(key, "draft %s, %lld bytes, ", base_name(path), bytes);
    }
    draft_describe(draft, key);
    str_puts(key, "; ");
}

static void put_key(struct str *key, const struct price_subject *s) {
    str_printf(key, "coppice %s; model %s, %" PRIu64 " bytes, tensors %016" PRIx64 "; ",
               COPPICE_VERSION, base_name(gguf_path(s->model)), gguf_bytes(s->model),
               hash_tensors(s->model));
    for (int i = 0; i < PRICE_DRAFTS && s->drafts[i]; i++)
        put_draft(key, s->paths[i], s->drafts[i]);
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
    if (s->view.window)
        str_printf(key, "; replies see %lld tokens", (long long)s->view.window);
    if (s->view.chosen)
        str_printf(key, " and %lld pages", (long long)s->view.chosen);
}

// Of a layer of the model, or of none: not of a block that predicts further tokens, nor a head for
// drafts.
static bool is_in_pass(const struct tensor *t, const struct model_params *p) {
    int layer;
    if (params_is_for_drafting(t->name) ||
        (sscanf(t->name, "blk.%d.", &layer) == 1 && layer >= p->n_layers))
        return false;
    return p->tied || strcmp(t->name, "token_embd.weight") != 0; // of which a row reads a row
}

// Bytes that a row reads, of experts alone or of all.
static double row_bytes(const struct gguf *g, const struct model_params *p, bool experts) {
    double bytes = 0;
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct tensor *t = gguf_tensor_at(g, i);
        bool one_of_many = p->moe.experts && t->n_dims == 3 && t->ne[2] == p->moe.experts;
        double part = one_of_many ? (double)p->moe.used / p->moe.experts : 1;
        bytes += is_in_pass(t, p) && (one_of_many || !experts) ? part * (double)t->bytes : 0;
    }
    return bytes;
}

double price_row_bytes(const struct gguf *g, const struct model_params *p) {
    return row_bytes(g, p, false);
}

struct price_experts price_experts_of(const struct gguf *g, const struct model_params *p) {
    if (!p->moe.experts)
        return (struct price_experts){0};
    double experts = row_bytes(g, p, true), all = price_row_bytes(g, p);
    return (struct price_experts){p->moe.experts, p->moe.used, all > 0 ? experts / all : 0};
}

static void note_failure(const struct price_note *n, const struct err *e, const char *rest) {
    char sentence[sizeof e->text + 64];
    snprintf(sentence, sizeof sentence, "%s; %s", e->text, rest);
    if (n->note)
        n->note(n->arg, sentence);
}

static void forget_file(struct price_file *f) {
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
        forget_file(f);
        return;
    }
    int rc = price_load(p, f->path.data, f->key.data, &e);
    if (rc == ERR_FORMAT || rc == ERR_LIMIT)
        note_failure(n, &e, "what passes cost is measured anew");
}

void price_file_close(struct price_file *f, const struct price *p, const struct price_note *n) {
    struct err e = {0};
    if (f->path.len && p && price_learnt(p)) {
        int rc = file_make_folder(f->folder.data, &e);
        if (!rc)
            rc = price_save(p, f->path.data, f->key.data, &e);
        if (rc)
            note_failure(n, &e, "what passes cost is not kept");
        else
            file_keep_newest(f->folder.data, "price-", ".json", KEPT);
    }
    forget_file(f);
}

// The file of a profile, in the order of this machine's bytes, which the version determines: magic
// (8 bytes), version, layers, experts and zero (32 bits each), hash of the model (64 bits), uses
// (32 bits each), and XXH64 of all that.

static const char MAGIC[8] = "COPSPARK";
enum { VERSION = 1 };

struct head {
    char magic[8];
    uint32_t version, layers, experts, none;
    uint64_t model;
};
_Static_assert(sizeof(struct head) == 32, "the head has no gaps");

void expert_profile_path(struct str *out, const char *model) {
    str_printf(out, "%s.spark", model);
}

static size_t uses_bytes(const struct expert_profile_subject *s) {
    return (size_t)s->layers * (size_t)s->experts * sizeof(uint32_t);
}

// A run leaves less than 2^25 for an expert, so more than this for all of a layer is made up; sums
// of it would not fit where they are kept.
static bool too_hot(const uint32_t *uses, const struct expert_profile_subject *s) {
    for (int i = 0; i < s->layers; i++) {
        uint64_t sum = 0;
        for (int k = 0; k < s->experts; k++)
            sum += uses[(size_t)i * (size_t)s->experts + (size_t)k];
        if (sum > INT32_MAX)
            return true;
    }
    return false;
}

static int refuse_profile(const char *path, const char *what, struct err *e) {
    return err_set(e, ERR_FORMAT, "%s %s; remove it to have a new one made", path, what);
}

int expert_profile_parse(uint32_t **uses, const void *data, size_t n, const char *path,
                         const struct expert_profile_subject *s, struct err *e) {
    struct head h;
    uint64_t sum;
    *uses = NULL;
    if (n < sizeof h || memcmp(data, MAGIC, sizeof MAGIC) != 0)
        return refuse_profile(path, "is no profile of experts", e);
    memcpy(&h, data, sizeof h);
    if (h.version != VERSION)
        return refuse_profile(path, "has another version of the format", e);
    if (h.layers != (uint32_t)s->layers || h.experts != (uint32_t)s->experts)
        return err_set(e, ERR_MISMATCH,
                       "%s is of a model with %u layers of %u experts, and this one has %d of %d; "
                       "remove it to have a new one made",
                       path, h.layers, h.experts, s->layers, s->experts);
    if (h.model != s->model)
        return err_set(e, ERR_MISMATCH,
                       "%s is of another model, or its file has changed since; remove it to have a "
                       "new one made",
                       path);
    size_t body = sizeof h + uses_bytes(s);
    if (n != body + sizeof sum)
        return refuse_profile(path, "is not whole", e);
    memcpy(&sum, (const char *)data + body, sizeof sum);
    if (sum != hash_bytes(data, body, 0))
        return refuse_profile(path, "is damaged", e);
    *uses = malloc(uses_bytes(s));
    if (!*uses)
        return err_set(e, ERR_MEMORY, "no memory for %s", path);
    memcpy(*uses, (const char *)data + sizeof h, uses_bytes(s));
    if (!too_hot(*uses, s))
        return 0;
    free(*uses);
    *uses = NULL;
    return refuse_profile(path, "has counts of uses that no run writes", e);
}

int expert_profile_read(uint32_t **uses, const char *path, const struct expert_profile_subject *s,
                        struct err *e) {
    struct str text = {0};
    *uses = NULL;
    struct stat is;
    if (stat(path, &is) != 0 && errno == ENOENT)
        return 0;
    if (stat(path, &is) == 0 && !S_ISREG(is.st_mode)) // reading it may never end
        return refuse_profile(path, "is a folder or a device, and no profile of experts", e);
    int rc = file_read(&text, path, sizeof(struct head) + uses_bytes(s) + 4096, e);
    if (!rc)
        rc = expert_profile_parse(uses, text.data, text.len, path, s, e);
    str_fini(&text);
    return rc;
}

int expert_profile_write(const uint32_t *uses, const char *path,
                         const struct expert_profile_subject *s, struct err *e) {
    struct head h = {.version = VERSION,
                     .layers = (uint32_t)s->layers,
                     .experts = (uint32_t)s->experts,
                     .model = s->model};
    struct hash sum;
    struct file_new f;
    memcpy(h.magic, MAGIC, sizeof MAGIC);
    hash_begin(&sum, 0);
    hash_add(&sum, &h, sizeof h);
    hash_add(&sum, uses, uses_bytes(s));
    uint64_t end = hash_end(&sum);
    int rc = file_new_open(&f, path, e);
    if (rc)
        return rc;
    rc = file_new_write(&f, &h, sizeof h, e);
    if (!rc)
        rc = file_new_write(&f, uses, uses_bytes(s), e);
    if (!rc)
        rc = file_new_write(&f, &end, sizeof end, e);
    if (rc) {
        file_new_abort(&f);
        return rc;
    }
    return file_new_close(&f, e);
}

static const double EVERY = 5 * 60e3; // milliseconds

void expert_profile_close(struct expert_profile *k) {
    str_fini(&k->path);
    free(k->uses);
    *k = (struct expert_profile){0};
}

void expert_profile_open(struct expert_profile *k, const char *model, const struct gguf *file,
                         const struct expert_classes *c, int first, const struct price_note *n) {
    struct err e = {0};
    *k = (struct expert_profile){
        .first = first,
        .subject = {first + expert_classes_layers(c), c->experts, content_sketch(file)},
        .written = clock_ms()};
    expert_profile_path(&k->path, model);
    int rc = k->path.failed ? err_set(&e, ERR_MEMORY, "no memory for a profile of experts")
                            : expert_profile_read(&k->uses, k->path.data, &k->subject, &e);
    if (!rc)
        return;
    note_failure(n, &e, "experts are placed without it");
    expert_profile_close(k);
}

static size_t in_front(const struct expert_profile *k) {
    return (size_t)k->first * (size_t)k->subject.experts;
}

const uint32_t *expert_profile_uses(const struct expert_profile *k) {
    return k->uses ? k->uses + in_front(k) : NULL;
}

void expert_profile_keep(struct expert_profile *k, struct expert_store *s, bool now,
                         const struct price_note *n) {
    struct err e = {0};
    struct expert_stats count;
    if (!k->path.len || !s || (!now && clock_ms() - k->written < EVERY))
        return;
    k->written = clock_ms();
    expert_store_stats(s, &count);
    uint32_t *uses = calloc((size_t)k->subject.layers * (size_t)k->subject.experts, sizeof *uses);
    if (uses && k->uses) // of the CPU's layers what was known stays
        memcpy(uses, k->uses, in_front(k) * sizeof *uses);
    if (uses && count.hits + count.misses != k->touched) {
        k->touched = count.hits + count.misses;
        if (expert_store_uses(s, uses + in_front(k), NULL, &e) ||
            expert_profile_write(uses, k->path.data, &k->subject, &e)) {
            note_failure(n, &e, "which experts were hot is not kept");
            expert_profile_close(k);
        }
    }
    free(uses);
}
