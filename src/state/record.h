// SPDX-License-Identifier: Apache-2.0
// The one stored form of state: what saved texts and files of the prefix cache are. A record is a
// checkpoint (state/checkpoint.h) with its tokens, less what another record has that begins alike,
// its base. A head of sections with hashes (state/stored.h) says what it is of (state/identity.h)
// and what there is; after it come the other bytes of devices, the rest, and whole pages, each
// with a hash in the head, so that any of them can be read alone, or all of them in one go. The
// form is described in docs/state.md.
#ifndef COPPICE_STATE_RECORD_H
#define COPPICE_STATE_RECORD_H

#include "state/ram_copy.h"

struct record_group {
    uint64_t page_bytes;
    int64_t len, first; // as of a RAM copy
    int64_t own;        // pages own .. are in this record, those before in its base
};

// The head of a record.
struct record {
    char *identity;     // what it is of; NULL: not kept after its key was taken
    uint64_t kind;      // its key
    uint64_t key, base; // of this text, of the base's; base 0: there is none
    int64_t len, sparse_end;
    int64_t common; // tokens, first ones, that are the base's
    int64_t n_tail; // tokens after those with state
    int n_groups;
    struct record_group groups[RAM_COPY_GROUPS];
    unsigned char *form; // [form_bytes] as of a RAM copy
    size_t form_bytes, rest_bytes;
    uint64_t *sums; // [n_sums] of rest, then of the pages, group by group
    int64_t n_sums;
    int32_t *tokens;     // [len - common + n_tail] after those
    int64_t data, bytes; // where the rest begins; of the whole record
};
void record_fini(struct record *r);
// Its bytes in memory, without tokens and identity.
int64_t record_memory(const struct record *r);
int64_t record_pages(const struct record *r); // pages that are in it, not in its base

// The key of a text: its tokens, of which those below sparse_end were read sparsely. Not 0.
uint64_t record_key(uint64_t kind, const int32_t *ids, int64_t n, int64_t sparse_end);

// Describes m as a record of that identity relative to a base, whose pages below those shared are
// not in it; base: NULL for none. r is zeroed but for n_tail; key and tokens are the caller's.
// ERR_MEMORY.
int record_of(struct record *r, const char *identity, const struct ram_copy *m,
              const struct record *base, int64_t common, struct err *e);
// Where a page of the record lies.
int64_t record_page(const struct record *r, int group, int64_t page, uint64_t *sum);

// Called between pieces of at most 4 MiB; NULL: it is not.
struct record_pause {
    void (*call)(void *arg);
    void *arg;
};
struct record_sink {
    stored_sink *sink;
    void *arg;
    const struct record_pause *pause;
    // NULL, or writes n bytes in place of those at `at`: then data is read once, and the sums are
    // put into the head afterwards. Without it data is read twice.
    int (*rewrite)(void *arg, int64_t at, const void *data, size_t n, struct err *e);
};
// Writes m, as described. Sets the sums. ERR_MEMORY, and what the sink returns.
int record_write(struct record *r, const struct ram_copy *m, const struct record_sink *to,
                 struct err *e);

// The bytes after a head, as the writer takes them; record_write lists a RAM copy's.
struct record_piece {
    struct exec *x; // whose memory it is; NULL: host memory
    const void *data;
    size_t bytes;
    const struct kv_layout *page; // of a device's page: slots of it are written, zeros for others
    int64_t slots;
};

struct record_data {
    const struct record_piece *pieces; // [n] n_rest of the rest, then pages
    int64_t n_rest, n;
};

// Writes a record that has been described. Errors as of record_write.
int record_write_data(struct record *r, const struct record_data *d, const struct record_sink *to,
                      struct err *e);

struct record_source {
    stored_source *source;
    void *arg;
    int64_t bytes; // that there are, all of one record
};
// Reads a head. ERR_FORMAT: cut off, damaged, or none; ERR_MISMATCH: of an older version;
// ERR_UNSUPPORTED: of a newer version; ERR_MEMORY. After an error there is nothing to free.
int record_read(struct record *r, const struct record_source *from, struct err *e);

// A checkpoint as a whole record, its pages and other bytes straight from devices and to them.
struct record_text {
    const char *identity; // of sequences of this spec
    int64_t vocab;
    int32_t *tail; // tokens after those with state: written, or read (free() it)
    int64_t n_tail;
};
// ERR_STATE: the checkpoint is invalid; ERR_DEVICE, ERR_MEMORY, and what the sink returns.
int record_save(const struct checkpoint *c, const struct record_text *text,
                const struct record_sink *to, struct err *e);
// A checkpoint of sequences of this spec. Errors as of record_read; ERR_MISMATCH: of another
// identity, or not whole; ERR_LIMIT: longer than max_len; ERR_DEVICE.
int record_load(struct checkpoint **out, const struct sequence_spec *spec, struct record_text *text,
                const struct record_source *from, struct err *e);

#endif
