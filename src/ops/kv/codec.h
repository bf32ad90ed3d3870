// SPDX-License-Identifier: Apache-2.0
// How keys and values are stored: one row per codec, with its sizes and its scalar functions, which
// specify every kernel that reads or writes pages. Codes and scales of a head row lie in planes of
// their own (layout.h). The enum, the table and the choices of options are all made from
// KV_CODECS, and whatever handles codecs one by one refuses those that it does not support by name.
//
// What the planes hold of a block of 32 values; all numbers are little-endian, d and m fp16:
//
//   codec   codes                       scales              value
//   q8_0    32 int8 c                   d                   d c
//   q4_0    16 bytes of nibbles c       d                   d (c - 8)
//   q4_1    the same                    d, m                d c + m
//   q5_0    the same, low four bits     d, 32 bits          d (c - 16)
//   q5_1    the same, low four bits     d, m, 32 bits       d c + m
//   tq3_0   8 bytes, low two bits       d, 32 bits          d centroid[c]
//
// Byte j of nibbles holds value j in its low and value j + 16 in its high half; byte j of two bits
// holds values j, j + 8, j + 16 and j + 24 from its lowest bits on; bit i of the 32 is the highest
// bit of value i's code. So the codes of a row are aligned by themselves, all codecs of four and
// five bits have the same plane of codes, and what a block needs besides is one read of two to
// eight bytes: a kernel has sixteen values from one read of eight or sixteen bytes, shifted and
// masked.
#ifndef COPPICE_OPS_KV_CODEC_H
#define COPPICE_OPS_KV_CODEC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "formats/quant/quant.h"

#ifdef __cplusplus
extern "C" {
#endif

// What is stored rotated (rotate.h), of keys and of values.
enum { KV_AS_IS, KV_ROTATES_K, KV_ROTATES_BOTH };
// The element type of a codec whose rounding no file has.
#define KV_NO_TYPE UINT32_MAX

// id, name, element type whose rounding it has; values of a block, bytes of its codes and of its
// scales; what is rotated. The first is the default.
#define KV_CODECS(X)                                                                               \
    X(KV_F16, "f16", TYPE_F16, 1, 2, 0, KV_AS_IS)                                                  \
    X(KV_F32, "f32", TYPE_F32, 1, 4, 0, KV_AS_IS)                                                  \
    X(KV_BF16, "bf16", TYPE_BF16, 1, 2, 0, KV_AS_IS)                                               \
    X(KV_Q8_0, "q8_0", TYPE_Q8_0, 32, 32, 2, KV_AS_IS)                                             \
    X(KV_Q5_1, "q5_1", TYPE_Q5_1, 32, 16, 8, KV_ROTATES_K)                                         \
    X(KV_Q5_0, "q5_0", TYPE_Q5_0, 32, 16, 6, KV_ROTATES_K)                                         \
    X(KV_Q4_1, "q4_1", TYPE_Q4_1, 32, 16, 4, KV_ROTATES_K)                                         \
    X(KV_Q4_0, "q4_0", TYPE_Q4_0, 32, 16, 2, KV_ROTATES_K)                                         \
    X(KV_TQ3_0, "tq3_0", KV_NO_TYPE, 32, 8, 6, KV_ROTATES_BOTH)

#define KV_CODEC_ID(id, ...) id,
enum kv_codec_id { KV_CODECS(KV_CODEC_ID) KV_CODEC_COUNT };
#undef KV_CODEC_ID

// "f16|f32|...", in the enum's order: the choices of an option.
#define KV_CODEC_CHOICE(id, name, ...) "|" name
#define KV_CODEC_CHOICES               (&("" KV_CODECS(KV_CODEC_CHOICE))[1])

// n values, a multiple of the block: from codes and scales, and to them. Input must be finite.
// Values that are stored rotated are rotated before and after.
typedef void kv_decode_fn(const unsigned char *codes, const unsigned char *scales, float *x,
                          int64_t n);
typedef void kv_encode_fn(const float *x, unsigned char *codes, unsigned char *scales, int64_t n);
// Whether n values, of rows that follow each other, are finite numbers.
typedef bool kv_finite_fn(const unsigned char *codes, const unsigned char *scales, int64_t n);

struct kv_codec {
    const char *name; // "q8_0"
    uint32_t type;    // enum tensor_type: values are rounded as the encoder of formats rounds them
    int block;        // values
    int code_bytes;   // of a block
    int scale_bytes;  // of a block; 0: no scales
    int rotates;      // KV_ROTATES_...
    kv_decode_fn *decode;
    kv_encode_fn *encode;
    kv_finite_fn *finite;
};

// Of TQ3_0: the best eight values for numbers of a normal distribution (Lloyd-Max), mirrored.
#define KV_TQ3_CENTROIDS                                                                           \
    {-2.1520f, -1.3439f, -0.7560f, -0.2451f, 0.2451f, 0.7560f, 1.3439f, 2.1520f}

// The row of an id within 0 .. KV_CODEC_COUNT - 1; NULL beyond.
const struct kv_codec *kv_codec_of(enum kv_codec_id id);
// Names count without case. ERR_USAGE for an unknown one, with a sentence that says which exist;
// `what` is the option.
int kv_codec_by_name(const char *name, const char *what, enum kv_codec_id *out, struct err *e);
// ERR_UNSUPPORTED for an id that no row has.
int kv_codec_check(enum kv_codec_id id, struct err *e);
// Bytes of n values, codes and scales together; n is a multiple of the block.
int64_t kv_codec_bytes(enum kv_codec_id id, int64_t n);

#ifdef __cplusplus
}
#endif

#endif
