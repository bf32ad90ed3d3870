// SPDX-License-Identifier: Apache-2.0
// The serial form of state: sections with lengths and hashes, written to a sink and read from a
// source piece by piece, so that neither needs all of it in memory. What a section holds is its
// owner's concern (checkpoints, attachments). Numbers are little-endian. Errors stay in
// the struct: after the first one nothing more is written, and reads give zeros.
#ifndef COPPICE_STATE_STORED_H
#define COPPICE_STATE_STORED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"
#include "state/kv.h"

// Takes the next n bytes.
typedef int stored_sink(void *arg, const void *data, size_t n, struct err *e);
// Gives exactly the next n bytes; ERR_FORMAT where there are fewer (stored_ends_early).
typedef int stored_source(void *arg, void *data, size_t n, struct err *e);
int stored_ends_early(struct err *e);
// The same to a struct file_new, also in place of bytes that were written, and from a FILE.
int stored_to_file(void *file, const void *data, size_t n, struct err *e);
int stored_over_file(void *file, int64_t at, const void *data, size_t n, struct err *e);
int stored_from_file(void *file, void *data, size_t n, struct err *e);

// What is kept apart from the serial form, by its writer and reader: bytes of devices, in the
// order in which they come, and the pages of groups, numbered from 0 in theirs.
struct stored_apart {
    void *arg;
    // Writing: n bytes at p of x's memory, and a group's page table; once each.
    void (*put_bytes)(void *arg, struct exec *x, const void *p, size_t n);
    void (*put_pages)(void *arg, struct exec *x, const struct kv *k);
    // Reading: n bytes of host memory, NULL where there are fewer left; the pages of positions
    // first .. len-1 into k, which is initialised and holds first dropped ones; and passing over
    // bytes and groups that are not used.
    const void *(*get_bytes)(void *arg, size_t n);
    int (*get_pages)(void *arg, struct exec *x, struct kv *k, int64_t len, struct err *e);
    int (*skip)(void *arg, uint32_t groups, uint64_t bytes, struct err *e);
    bool check; // bytes come from outside: values must be finite
};

struct stored_out {
    stored_sink *sink;
    void *arg;
    bool measure;     // counts bytes only
    uint64_t n;       // bytes of this section so far
    struct hash hash; // of this section
    const struct stored_apart *apart;
    int groups; // that came so far, and bytes of devices
    uint64_t rest;
    int rc;
    struct err err;
};

// A section: its tag (4 characters), its length, what write puts, and its hash. write runs twice,
// the first time to be measured.
typedef void stored_write_fn(struct stored_out *o, const void *arg);
void stored_section(struct stored_out *o, const char *tag, stored_write_fn *write, const void *arg);

void stored_put(struct stored_out *o, const void *data, size_t n);
void stored_put_u32(struct stored_out *o, uint32_t v);
void stored_put_u64(struct stored_out *o, uint64_t v);
void stored_put_text(struct stored_out *o, const char *s); // at most STORED_TEXT bytes
// n bytes of x's memory.
void stored_put_device(struct stored_out *o, struct exec *x, const void *p, size_t n);
// The pages of a group, whose layout and window the identity says (state/identity.h), but those
// that have been dropped.
void stored_put_kv(struct stored_out *o, struct exec *x, const struct kv *k);

enum { STORED_TEXT = 255 };

// Whether all values of a page in host memory are finite numbers, its unused slots too.
bool stored_page_finite(const struct kv_layout *l, const unsigned char *page);
// Zeros for the slots of a page after its first n.
void stored_page_clear(const struct kv_layout *l, unsigned char *page, int64_t n);

struct stored_in {
    stored_source *source;
    void *arg;
    uint64_t left; // bytes of this section
    struct hash hash;
    const struct stored_apart *apart; // as it was written
    int rc;
    struct err err;
};

// Sets the error that the bytes make no sense.
void stored_damaged(struct stored_in *in);
void stored_fail(struct stored_in *in, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

// The next section, damaged where it has another tag; then reads are within it; then its end and
// hash are checked.
void stored_enter_as(struct stored_in *in, const char *tag);
void stored_leave(struct stored_in *in);
void stored_skip(struct stored_in *in); // what is left of it

void stored_get(struct stored_in *in, void *data, size_t n);
uint32_t stored_get_u32(struct stored_in *in);
uint64_t stored_get_u64(struct stored_in *in);
void stored_get_text(struct stored_in *in, char *s); // [STORED_TEXT + 1]
// n floats into x's memory, which must be finite.
void stored_get_floats(struct stored_in *in, struct exec *x, float *p, int64_t n);
// The first len positions of a group into k, which is initialised and empty; values must be finite.
void stored_get_kv(struct stored_in *in, struct exec *x, struct kv *k, int64_t len);

#endif
