// SPDX-License-Identifier: Apache-2.0
// GGUF v2 and v3: a validating reader over a memory map and a streaming writer.
// A hostile file gets one sentence; nothing is allocated from a count that the file size does
// not justify. Split files are followed from their first part.
#ifndef COPPICE_FORMATS_GGUF_GGUF_H
#define COPPICE_FORMATS_GGUF_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum gguf_kind {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
};

// One metadata entry. Bytes are borrowed from the map, unaligned, in the file's own encoding
// (a string begins with its u64 length).
struct gguf_kv {
    const char *key; // NUL-terminated copy
    int kind;        // enum gguf_kind
    int elem;        // element kind when kind is GGUF_ARRAY
    uint64_t count;  // array elements; 1 otherwise
    const unsigned char *bytes;
};

// One tensor. Weights of any file format are described by this struct.
struct tensor {
    const char *name;
    uint32_t type; // enum tensor_type; always one that quant_format() supports
    int n_dims;    // 1..4
    int64_t ne[4]; // ggml order: ne[0] contiguous; unused dims are 1
    int64_t bytes;
    const void *data; // borrowed from the map; only byte-aligned
};

struct gguf; // an open file (or set of split files)

// Of a model in parts (-00001-of-N.gguf) any part may be given; all are opened.
// The file must not shrink while it is open: reading a page that has gone raises SIGBUS
// (gguf_check).
int gguf_open(struct gguf **out, const char *path, struct err *e);
// The same over memory that the caller keeps alive (tests, fuzzing); no split files.
int gguf_open_memory(struct gguf **out, const void *data, size_t size, struct err *e);
void gguf_close(struct gguf *g);
// For a device, which keeps its own copy: that all tensors will be read once in file order, and
// that one has been read, so that a model is never in memory twice. Its data stays readable.
void gguf_stream(const struct gguf *g);
// ERR_IO: a file of it has been written to, or cut, since it was opened.
int gguf_check(const struct gguf *g, struct err *e);
void gguf_release(const struct gguf *g, const struct tensor *t);

const char *gguf_path(const struct gguf *g); // as given, or the first part's
int gguf_version(const struct gguf *g);
uint64_t gguf_bytes(const struct gguf *g); // size of all parts
int gguf_parts(const struct gguf *g);      // 1 unless the file is split
size_t gguf_kv_count(const struct gguf *g);
const struct gguf_kv *gguf_kv_at(const struct gguf *g, size_t i);
const struct gguf_kv *gguf_find(const struct gguf *g, const char *key); // NULL when absent
size_t gguf_tensor_count(const struct gguf *g);
const struct tensor *gguf_tensor_at(const struct gguf *g, size_t i);
const struct tensor *gguf_tensor(const struct gguf *g, const char *name); // NULL when absent

// Typed reads. A missing key gives `otherwise`; a value of another kind or outside
// lo..hi is ERR_FORMAT naming the key and the value. Any integer kind is accepted for ints.
int gguf_get_int(const struct gguf *g, const char *key, int64_t lo, int64_t hi, int64_t otherwise,
                 int64_t *out, struct err *e);
int gguf_get_float(const struct gguf *g, const char *key, double otherwise, double *out,
                   struct err *e);
int gguf_get_bool(const struct gguf *g, const char *key, bool otherwise, bool *out, struct err *e);
// Borrowed bytes, not NUL-terminated; *s = NULL when the key is absent.
int gguf_get_str(const struct gguf *g, const char *key, const char **s, size_t *len, struct err *e);

// Element i of an array value as integer, float or string (kinds convert; strings are borrowed).
// Precondition: i < count and the element kind fits (check kv->elem first).
int64_t gguf_array_int(const struct gguf_kv *kv, uint64_t i);
double gguf_array_float(const struct gguf_kv *kv, uint64_t i);
// Strings have varying length: walk them with a cursor that starts as kv->bytes.
const char *gguf_array_str(const unsigned char **cursor, size_t *len);

// Writer: metadata first, then all tensor descriptions, then their data in the same order.
// A wrong use (a key twice, a row that is no whole number of blocks) is remembered and reported by
// the next call that takes an err. To align to anything but 32, put general.alignment (GGUF_U32)
// before the first tensor.
// Output is packed, padded with zeros and accepted by other readers. Everything goes to
// `path` through a temporary file that replaces it only on success.
struct gguf_writer;
int gguf_writer_open(struct gguf_writer **out, const char *path, struct err *e);
// Before the first tensor: at most that many bytes of tensors go to one file, a larger tensor to
// one of its own. Where one file is not enough, PATH without .gguf becomes
// PATH-00001-of-0000N.gguf, and so on; the first holds the metadata. gguf_writer_map() cannot be
// used then.
void gguf_writer_split(struct gguf_writer *w, int64_t bytes);
void gguf_put_int(struct gguf_writer *w, const char *key, int kind, int64_t v);
void gguf_put_f32(struct gguf_writer *w, const char *key, float v);
void gguf_put_bool(struct gguf_writer *w, const char *key, bool v);
// What is no UTF-8 is written as U+FFFD: no reader takes it.
void gguf_put_str(struct gguf_writer *w, const char *key, const char *s, size_t n);
// Array of fixed-size elements in memory order; kind is the element kind.
void gguf_put_array(struct gguf_writer *w, const char *key, int kind, const void *elems,
                    uint64_t count);
void gguf_put_str_array(struct gguf_writer *w, const char *key, const char *const *strings,
                        const size_t *lengths, uint64_t count);
void gguf_put_kv(struct gguf_writer *w, const struct gguf_kv *kv); // copies an entry of a reader
void gguf_add_tensor(struct gguf_writer *w, const char *name, uint32_t type, int n_dims,
                     const int64_t *ne);
// Data of the next tensor, in pieces of any size; the sum must match the description.
int gguf_write_data(struct gguf_writer *w, const void *data, size_t bytes, struct err *e);
// In place of gguf_write_data: makes the file as long as it will be and maps it, so that several
// threads can fill it; places[i] (caller's array, one entry per tensor) is where tensor i goes.
// ERR_IO when the disk has not that much room. Such a file is not synced: it can be made again.
int gguf_writer_map(struct gguf_writer *w, unsigned char **places, struct err *e);
// Checks that all data came, syncs and renames. Frees w in any case.
int gguf_writer_close(struct gguf_writer *w, struct err *e);
void gguf_writer_abort(struct gguf_writer *w); // drops the temporary file, frees w

#endif
