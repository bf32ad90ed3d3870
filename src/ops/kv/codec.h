// SPDX-License-Identifier: Apache-2.0
// How keys and values are stored: one row per codec, with its sizes and its scalar functions, which
// specify every kernel that reads or writes pages. Codes and scales of a head row lie in planes of
// their own (layout.h). The enum, the table and the choices of options are all made from
// KV_CODECS, and whatever handles codecs one by one refuses those that it does not support by name.
#ifndef COPPICE_OPS_KV_CODEC_H
#define COPPICE_OPS_KV_CODEC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "formats/quant/quant.h"

#ifdef __cplusplus
extern "C" {
#endif

// id, name, element type whose rounding it has; values of a block, bytes of its codes and of its
// scales. The first is the default.
#define KV_CODECS(X)                                                                               \
    X(KV_F16, "f16", TYPE_F16, 1, 2, 0)                                                            \
    X(KV_F32, "f32", TYPE_F32, 1, 4, 0)                                                            \
    X(KV_BF16, "bf16", TYPE_BF16, 1, 2, 0)                                                         \
    X(KV_Q8_0, "q8_0", TYPE_Q8_0, 32, 32, 2)

#define KV_CODEC_ID(id, ...) id,
enum kv_codec_id { KV_CODECS(KV_CODEC_ID) KV_CODEC_COUNT };
#undef KV_CODEC_ID

// "f16|f32|...", in the enum's order: the choices of an option.
#define KV_CODEC_CHOICE(id, name, ...) "|" name
#define KV_CODEC_CHOICES               (&("" KV_CODECS(KV_CODEC_CHOICE))[1])

// n values, a multiple of the block: from codes and scales, and to them. Input must be finite.
typedef void kv_decode_fn(const unsigned char *codes, const unsigned char *scales, float *x,
                          int64_t n);
typedef void kv_encode_fn(const float *x, unsigned char *codes, unsigned char *scales, int64_t n);

struct kv_codec {
    const char *name; // "q8_0"
    uint32_t type;    // enum tensor_type: values are rounded as the encoder of formats rounds them
    int block;        // values
    int code_bytes;   // of a block
    int scale_bytes;  // of a block; 0: no scales
    kv_decode_fn *decode;
    kv_encode_fn *encode;
};

// The row of an id within 0 .. KV_CODEC_COUNT - 1; NULL beyond.
const struct kv_codec *kv_codec_of(enum kv_codec_id id);
// ERR_USAGE for an unknown name, with a sentence that says which exist; `what` is the option.
int kv_codec_by_name(const char *name, const char *what, enum kv_codec_id *out, struct err *e);
// ERR_UNSUPPORTED for an id that no row has.
int kv_codec_check(enum kv_codec_id id, struct err *e);
// Bytes of n values, codes and scales together; n is a multiple of the block.
int64_t kv_codec_bytes(enum kv_codec_id id, int64_t n);

#ifdef __cplusplus
}
#endif

#endif
