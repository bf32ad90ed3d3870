// SPDX-License-Identifier: Apache-2.0
// Files of reference logits; see reference.h.
#include "cli/perplexity/reference.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/perplexity/rows.h"

static const char magic[8] = {'_', 'l', 'o', 'g', 'i', 't', 's', '_'};
enum { HEAD = sizeof magic + 3 * sizeof(int32_t), WINDOW_MAX = 1 << 24 };

static int64_t row_bytes(const struct reference_shape *s) {
    return row_units(s->vocab) * (int64_t)sizeof(uint16_t);
}

static int64_t row_place(const struct reference_shape *s, int64_t window, int64_t i) {
    return HEAD + s->windows * s->window * (int64_t)sizeof(int32_t) +
           (window * window_scored(s->window) + i) * row_bytes(s);
}

int64_t reference_bytes(const struct reference_shape *s) {
    return row_place(s, s->windows, 0);
}

// Whether a file of `size` bytes can hold that: by division, since the numbers are the file's.
static bool fits(const struct reference_shape *s, int64_t size) {
    int64_t of_window = s->window * (int64_t)sizeof(int32_t) +
                        window_scored(s->window) * row_bytes(s); // below 2^58
    return s->windows <= (size - HEAD) / of_window;
}

int reference_open(struct reference *r, const char *path, struct err *e) {
    int32_t n[3];
    int rc = file_map_open(&r->map, path, e);
    if (rc)
        return rc;
    if (r->map.size < HEAD || memcmp(r->map.data, magic, sizeof magic) != 0)
        return err_set(
            e, ERR_FORMAT,
            "%s: no file of reference logits; 'perplexity --save-logits FILE' writes one", path);
    memcpy(n, r->map.data + sizeof magic, sizeof n);
    r->shape = (struct reference_shape){n[0], n[1], n[2]};
    if (n[0] < 4 || n[0] > WINDOW_MAX || n[1] < 1 || n[2] < 1)
        return err_set(e, ERR_FORMAT,
                       "%s: %d windows of %d tokens with %d logits each are no reference", path,
                       n[2], n[0], n[1]);
    if (!fits(&r->shape, (int64_t)r->map.size))
        return err_set(e, ERR_FORMAT,
                       "%s: the file is cut: %d windows of %d tokens are more than its %lld bytes; "
                       "write it again",
                       path, n[2], n[0], (long long)r->map.size);
    for (int64_t i = 0; i < r->shape.windows * r->shape.window; i++)
        if (reference_token(r, i) < 0 || reference_token(r, i) >= r->shape.vocab)
            return err_set(e, ERR_FORMAT, "%s: token %lld is %d, which is not within 0 to %d", path,
                           (long long)i, reference_token(r, i), n[1] - 1);
    return 0;
}

void reference_close(struct reference *r) {
    file_map_close(&r->map);
}

int32_t reference_token(const struct reference *r, int64_t i) {
    int32_t id;
    memcpy(&id, r->map.data + HEAD + i * (int64_t)sizeof id, sizeof id);
    return id;
}

const uint16_t *reference_row(const struct reference *r, int64_t window, int64_t i) {
    return (const uint16_t *)(const void *)(r->map.data + row_place(&r->shape, window, i));
}

int reference_create(struct file_new *f, const char *path, const struct reference_shape *s,
                     const int32_t *ids, struct err *e) {
    const int32_t n[3] = {(int32_t)s->window, (int32_t)s->vocab, (int32_t)s->windows};
    int rc = file_new_open(f, path, e);
    if (!rc)
        rc = file_new_write(f, magic, sizeof magic, e);
    if (!rc)
        rc = file_new_write(f, n, sizeof n, e);
    return rc ? rc : file_new_write(f, ids, (size_t)(s->windows * s->window) * sizeof *ids, e);
}

int reference_write(struct file_new *f, const struct reference_shape *s, int64_t window, int64_t i,
                    const uint16_t *row, struct err *e) {
    int64_t at = row_place(s, window, i);
    if (ftello(f->file) != at && fseeko(f->file, at, SEEK_SET))
        return err_set(e, ERR_IO, "cannot write %s: %s", f->path, strerror(errno));
    return file_new_write(f, row, (size_t)row_bytes(s), e);
}
