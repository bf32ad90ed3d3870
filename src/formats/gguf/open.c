// SPDX-License-Identifier: Apache-2.0
// Opens GGUF files: maps them, has them parsed (parse.c) and finds the other parts of a split
// model.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/gguf/impl.h"

// Maps one more file and parses it.
static int open_part(struct gguf *g, const char *path, struct gguf_meta *meta, struct err *e) {
    struct file_map *parts = realloc(g->parts, (size_t)(g->n_parts + 1) * sizeof *parts);
    if (!parts)
        return err_set(e, ERR_MEMORY, "%s: not enough memory to open the file", path);
    g->parts = parts;
    g->parts[g->n_parts] = (struct file_map){0};
    int rc = file_map_open(&g->parts[g->n_parts], path, e);
    if (rc)
        return rc;
    const struct file_map *m = &g->parts[g->n_parts++];
    g->bytes += m->size;
    if (gguf_parse(g, meta, m->data, m->size, e))
        return err_prefix(e, "%s", path);
    return 0;
}

static int split_int(const struct gguf_meta *m, const char *key, int64_t otherwise) {
    const struct gguf_kv *kv = gguf_meta_find(m, key);
    int64_t v;
    if (!kv || kv->kind == GGUF_BOOL || !gguf_load_int(kv->kind, kv->bytes, &v))
        return (int)otherwise;
    return v < 0 || v > INT32_MAX ? -1 : (int)v;
}

// Length of path without "-NNNNN-of-NNNNN.gguf" for part `no` (0-based); 0 when it ends otherwise.
static size_t split_stem(const char *path, int no, int count) {
    char tail[48];
    int n = snprintf(tail, sizeof tail, "-%05d-of-%05d.gguf", no + 1, count);
    size_t len = strlen(path);
    if (len <= (size_t)n || strcmp(path + len - (size_t)n, tail))
        return 0;
    return len - (size_t)n;
}

static int open_sibling(struct gguf *g, size_t stem, int no, int count, struct err *e) {
    struct gguf_meta meta = {0};
    size_t size = stem + 48;
    char *path = arena_alloc(&g->arena, size);
    if (!path)
        return err_set(e, ERR_MEMORY, "%s: not enough memory to open its parts", g->path);
    snprintf(path, size, "%.*s-%05d-of-%05d.gguf", (int)stem, g->path, no + 1, count);
    int rc = open_part(g, path, &meta, e);
    if (!rc &&
        (split_int(&meta, "split.no", -1) != no || split_int(&meta, "split.count", -1) != count))
        rc = err_set(e, ERR_FORMAT,
                     "%s: split.no and split.count say part %d of %d, not %d of %d: get the parts "
                     "of one model again",
                     path, split_int(&meta, "split.no", -1) + 1,
                     split_int(&meta, "split.count", -1), no + 1, count);
    gguf_meta_fini(&meta);
    return rc;
}

// Another part than the first was given: begins again with the first, which has the metadata.
static int reopen_first(struct gguf *g, size_t stem, int count, struct err *e) {
    size_t size = stem + 48;
    char *path = arena_alloc(&g->arena, size);
    if (!path)
        return err_set(e, ERR_MEMORY, "%s: not enough memory to open its parts", g->path);
    snprintf(path, size, "%.*s-00001-of-%05d.gguf", (int)stem, g->path, count);
    gguf_meta_fini(&g->meta);
    map_fini(&g->names);
    file_map_close(&g->parts[--g->n_parts]);
    g->n_tensors = 0;
    g->bytes = 0;
    g->path = path;
    int rc = open_part(g, path, &g->meta, e);
    if (!rc && (split_int(&g->meta, "split.no", -1) != 0 ||
                split_int(&g->meta, "split.count", -1) != count))
        rc = err_set(e, ERR_FORMAT, "%s is not part 1 of %d: get the parts of one model again",
                     path, count);
    return rc;
}

// Opens the other parts of a split file; a file without split keys is complete as it is.
static int open_splits(struct gguf *g, struct err *e) {
    int count = split_int(&g->meta, "split.count", 0), no = split_int(&g->meta, "split.no", 0);
    if (count >= 0 && count <= 1)
        return 0;
    if (count < 0 || count > 65535 || no < 0 || no >= count)
        return err_set(e, ERR_FORMAT, "%s: part %d of %d makes no sense: get the file again",
                       g->path, no + 1, count);
    size_t stem = split_stem(g->path, no, count);
    if (!stem || stem > 4096)
        return err_set(e, ERR_FORMAT,
                       "%s is part %d of %d, but its name does not end in -%05d-of-%05d.gguf: "
                       "restore its name",
                       g->path, no + 1, count, no + 1, count);
    int rc = no ? reopen_first(g, stem, count, e) : 0;
    for (int i = 1; i < count && !rc; i++)
        rc = open_sibling(g, stem, i, count, e);
    int64_t total = split_int(&g->meta, "split.tensors.count", -1);
    if (!rc && total != (int64_t)g->n_tensors)
        rc = err_set(e, ERR_FORMAT,
                     "%s: the %d parts hold %zu tensors, but split.tensors.count says %" PRId64
                     ": get the parts again",
                     g->path, count, g->n_tensors, total);
    return rc;
}

int gguf_open(struct gguf **out, const char *path, struct err *e) {
    struct gguf *g = calloc(1, sizeof *g);
    if (g)
        g->path = arena_strndup(&g->arena, path, strlen(path));
    if (!g || !g->path) {
        gguf_close(g);
        return err_set(e, ERR_MEMORY, "%s: not enough memory to open the file", path);
    }
    int rc = open_part(g, g->path, &g->meta, e);
    if (!rc)
        rc = open_splits(g, e);
    if (rc)
        gguf_close(g);
    else
        *out = g;
    return rc;
}

int gguf_open_memory(struct gguf **out, const void *data, size_t size, struct err *e) {
    struct gguf *g = calloc(1, sizeof *g);
    if (!g)
        return err_set(e, ERR_MEMORY, "not enough memory to open GGUF data");
    g->path = "GGUF data in memory";
    g->bytes = size;
    int rc = gguf_parse(g, &g->meta, data, size, e);
    if (rc)
        rc = err_prefix(e, "%s", g->path);
    else if (split_int(&g->meta, "split.count", 0) > 1)
        rc = err_set(e, ERR_UNSUPPORTED, "%s is one part of a split model: open it by its path",
                     g->path);
    if (rc)
        gguf_close(g);
    else
        *out = g;
    return rc;
}
