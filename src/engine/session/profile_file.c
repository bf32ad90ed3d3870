// SPDX-License-Identifier: Apache-2.0
// See profile_file.h. In the file, in the order of this machine's bytes, which the version tells:
// magic (8 bytes), version, layers, experts and zero (32 bits each), hash of the model (64 bits),
// heats (32 bits each), and XXH64 of all that.
#include "engine/session/profile_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/new_file.h"

static const char MAGIC[8] = "COPSPARK";
enum { VERSION = 1 };

struct head {
    char magic[8];
    uint32_t version, layers, experts, none;
    uint64_t model;
};
_Static_assert(sizeof(struct head) == 32, "the head has no gaps");

void spark_path(struct str *out, const char *model) {
    str_printf(out, "%s.spark", model);
}

static size_t heat_bytes(const struct spark_subject *s) {
    return (size_t)s->layers * (size_t)s->experts * sizeof(uint32_t);
}

// A run leaves less than 2^25 for an expert, so more than this for all of a layer is made up; sums
// of it would not fit where they are kept.
static bool too_hot(const uint32_t *heat, const struct spark_subject *s) {
    for (int i = 0; i < s->layers; i++) {
        uint64_t sum = 0;
        for (int k = 0; k < s->experts; k++)
            sum += heat[(size_t)i * (size_t)s->experts + (size_t)k];
        if (sum > INT32_MAX)
            return true;
    }
    return false;
}

static int damaged(const char *path, const char *what, struct err *e) {
    return err_set(e, ERR_FORMAT, "%s %s; remove it to have a new one made", path, what);
}

int spark_parse(uint32_t **heat, const void *data, size_t n, const char *path,
                const struct spark_subject *s, struct err *e) {
    struct head h;
    uint64_t sum;
    *heat = NULL;
    if (n < sizeof h || memcmp(data, MAGIC, sizeof MAGIC) != 0)
        return damaged(path, "is no profile of experts", e);
    memcpy(&h, data, sizeof h);
    if (h.version != VERSION)
        return damaged(path, "has another version of the format", e);
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
    size_t body = sizeof h + heat_bytes(s);
    if (n != body + sizeof sum)
        return damaged(path, "is not whole", e);
    memcpy(&sum, (const char *)data + body, sizeof sum);
    if (sum != hash_bytes(data, body, 0))
        return damaged(path, "is damaged", e);
    *heat = malloc(heat_bytes(s));
    if (!*heat)
        return err_set(e, ERR_MEMORY, "no memory for %s", path);
    memcpy(*heat, (const char *)data + sizeof h, heat_bytes(s));
    if (!too_hot(*heat, s))
        return 0;
    free(*heat);
    *heat = NULL;
    return damaged(path, "has heats that no run leaves behind", e);
}

int spark_read(uint32_t **heat, const char *path, const struct spark_subject *s, struct err *e) {
    struct str text = {0};
    *heat = NULL;
    struct stat is;
    if (stat(path, &is) != 0 && errno == ENOENT)
        return 0;
    if (stat(path, &is) == 0 && !S_ISREG(is.st_mode)) // reading it may never end
        return damaged(path, "is a folder or a device, and no profile of experts", e);
    int rc = file_read(&text, path, sizeof(struct head) + heat_bytes(s) + 4096, e);
    if (!rc)
        rc = spark_parse(heat, text.data, text.len, path, s, e);
    str_fini(&text);
    return rc;
}

int spark_write(const uint32_t *heat, const char *path, const struct spark_subject *s,
                struct err *e) {
    struct head h = {.version = VERSION,
                     .layers = (uint32_t)s->layers,
                     .experts = (uint32_t)s->experts,
                     .model = s->model};
    struct hash sum;
    struct file_new f;
    memcpy(h.magic, MAGIC, sizeof MAGIC);
    hash_begin(&sum, 0);
    hash_add(&sum, &h, sizeof h);
    hash_add(&sum, heat, heat_bytes(s));
    uint64_t end = hash_end(&sum);
    int rc = file_new_open(&f, path, e);
    if (rc)
        return rc;
    rc = file_new_write(&f, &h, sizeof h, e);
    if (!rc)
        rc = file_new_write(&f, heat, heat_bytes(s), e);
    if (!rc)
        rc = file_new_write(&f, &end, sizeof end, e);
    if (rc) {
        file_new_abort(&f);
        return rc;
    }
    return file_new_close(&f, e);
}
