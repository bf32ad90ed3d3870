// SPDX-License-Identifier: Apache-2.0
// Sections, numbers and device memory of the serial form; see stored.h. Groups of keys and values
// are in kv.c.
#include "base/num.h"
#include "state/finite.h"
#include "state/stored/impl.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 20 }; // bytes moved at once

int stored_ends_early(struct err *e) {
    return err_set(e, ERR_FORMAT, "the checkpoint ends early; it was cut off, make it again");
}

void stored_out_fini(struct stored_out *o) {
    free(o->buffer);
    o->buffer = NULL;
    o->buffer_bytes = 0;
}

void stored_put(struct stored_out *o, const void *data, size_t n) {
    o->n += n;
    if (o->rc || o->measure || n == 0)
        return;
    hash_add(&o->hash, data, n);
    o->rc = o->sink(o->arg, data, n, &o->err);
}

static void le_bytes(unsigned char *b, uint64_t v, int n) {
    for (int i = 0; i < n; i++)
        b[i] = (unsigned char)(v >> (8 * i));
}

static uint64_t le_number(const unsigned char *b, int n) {
    uint64_t v = 0;
    for (int i = 0; i < n; i++)
        v |= (uint64_t)b[i] << (8 * i);
    return v;
}

void stored_put_u32(struct stored_out *o, uint32_t v) {
    unsigned char b[4];
    le_bytes(b, v, 4);
    stored_put(o, b, sizeof b);
}

void stored_put_u64(struct stored_out *o, uint64_t v) {
    unsigned char b[8];
    le_bytes(b, v, 8);
    stored_put(o, b, sizeof b);
}

void stored_put_text(struct stored_out *o, const char *s) {
    size_t n = strlen(s);
    n = n < STORED_TEXT ? n : STORED_TEXT;
    stored_put_u32(o, (uint32_t)n);
    stored_put(o, s, n);
}

void stored_section(struct stored_out *o, const char *tag, stored_write_fn *write,
                    const void *arg) {
    bool measured = o->measure;
    unsigned char end[8];
    o->measure = true;
    o->n = 0;
    write(o, arg);
    uint64_t n = o->n;
    o->measure = measured;
    hash_begin(&o->hash, 0);
    stored_put(o, tag, 4);
    stored_put_u64(o, n);
    write(o, arg);
    le_bytes(end, hash_end(&o->hash), 8);
    stored_put(o, end, sizeof end);
}

// Host memory for n bytes.
static bool grow_buffer(unsigned char **buffer, size_t *have, size_t n) {
    if (n <= *have)
        return true;
    unsigned char *more = realloc(*buffer, n);
    if (!more)
        return false;
    *buffer = more;
    *have = n;
    return true;
}

const unsigned char *stored_fetch(struct stored_out *o, struct exec *x, const void *p, size_t n) {
    if (o->rc || o->measure)
        return NULL;
    if (o->fetch) {
        o->fetch(o->fetch_arg, x, p, n);
        return NULL;
    }
    if (o->stage) {
        const unsigned char *at = o->stage->data + o->stage->at;
        o->stage->at += n;
        return at;
    }
    if (!grow_buffer(&o->buffer, &o->buffer_bytes, n)) {
        o->rc = err_set(&o->err, ERR_MEMORY, "no memory to write a checkpoint");
        return NULL;
    }
    exec_ops(x)->download(x, o->buffer, p, n);
    return o->buffer;
}

void stored_put_device(struct stored_out *o, struct exec *x, const void *p, size_t n) {
    const unsigned char *from = p;
    if (o->apart && !o->measure && !o->rc && n)
        o->apart->put_bytes(o->apart->arg, x, p, n);
    for (size_t i = 0; i < n && !o->apart; i += PIECE) {
        size_t some = min_size(n - i, PIECE);
        const unsigned char *host = stored_fetch(o, x, from + i, some);
        if (host || o->measure)
            stored_put(o, host, some);
    }
}

void stored_in_fini(struct stored_in *in) {
    free(in->buffer);
    in->buffer = NULL;
    in->buffer_bytes = 0;
}

void stored_fail(struct stored_in *in, int code, const char *fmt, ...) {
    char text[sizeof in->err.text];
    va_list args;
    if (in->rc)
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    in->rc = err_set(&in->err, code, "%s", text);
}

void stored_damaged(struct stored_in *in) {
    stored_fail(in, ERR_FORMAT, "the checkpoint is damaged; make it again");
}

// Bytes of the source, in a section or not.
static void take(struct stored_in *in, void *data, size_t n) {
    if (!in->rc)
        in->rc = in->source(in->arg, data, n, &in->err);
    if (in->rc)
        memset(data, 0, n);
    else
        hash_add(&in->hash, data, n);
}

void stored_get(struct stored_in *in, void *data, size_t n) {
    if (n > in->left)
        stored_damaged(in);
    else
        in->left -= n;
    take(in, data, n);
}

uint32_t stored_get_u32(struct stored_in *in) {
    unsigned char b[4];
    stored_get(in, b, sizeof b);
    return (uint32_t)le_number(b, 4);
}

uint64_t stored_get_u64(struct stored_in *in) {
    unsigned char b[8];
    stored_get(in, b, sizeof b);
    return le_number(b, 8);
}

void stored_get_text(struct stored_in *in, char *s) {
    uint32_t n = stored_get_u32(in);
    if (n > STORED_TEXT)
        stored_damaged(in);
    n = n > STORED_TEXT ? 0 : n;
    stored_get(in, s, n);
    s[n] = 0;
    if (strlen(s) != n)
        stored_damaged(in);
}

void stored_enter(struct stored_in *in, char *tag) {
    unsigned char n[8];
    hash_begin(&in->hash, 0);
    take(in, tag, 4);
    tag[4] = 0;
    take(in, n, sizeof n);
    in->left = le_number(n, 8);
}

void stored_leave(struct stored_in *in) {
    unsigned char b[8];
    uint64_t want = hash_end(&in->hash);
    if (in->left)
        stored_damaged(in);
    take(in, b, sizeof b);
    if (le_number(b, 8) != want)
        stored_damaged(in);
}

void stored_skip(struct stored_in *in) {
    unsigned char some[4096];
    while (!in->rc && in->left)
        stored_get(in, some, in->left < sizeof some ? (size_t)in->left : sizeof some);
}

unsigned char *stored_buffer(struct stored_in *in, size_t n) {
    if (grow_buffer(&in->buffer, &in->buffer_bytes, n))
        return in->buffer;
    stored_fail(in, ERR_MEMORY, "no memory to read a checkpoint");
    return NULL;
}

// Floats that are kept apart; whoever keeps them has seen to it that they are whole.
static void get_apart(struct stored_in *in, struct exec *x, float *p, int64_t n) {
    size_t bytes = (size_t)n * sizeof *p;
    const float *host = in->rc || !bytes ? NULL : in->apart->get_bytes(in->apart->arg, bytes);
    if (host && in->apart->check && !finite_f32(host, n))
        host = NULL;
    if (host)
        exec_ops(x)->upload(x, p, host, bytes);
    else if (bytes)
        stored_damaged(in);
}

void stored_get_floats(struct stored_in *in, struct exec *x, float *p, int64_t n) {
    int64_t most = PIECE / (int64_t)sizeof *p;
    if (in->apart) {
        get_apart(in, x, p, n);
        return;
    }
    float *host = (float *)stored_buffer(in, PIECE);
    for (int64_t i = 0; !in->rc && i < n; i += most) {
        int64_t some = min_i64(n - i, most);
        stored_get(in, host, (size_t)some * sizeof *p);
        if (!in->rc && !finite_f32(host, some))
            stored_damaged(in);
        if (!in->rc)
            exec_ops(x)->upload(x, p + i, host, (size_t)some * sizeof *p);
    }
}
