// SPDX-License-Identifier: Apache-2.0
// The rows of the KV codecs. Plain numbers are rounded by the encoders of src/formats; Q8_0 is the
// same there but for where a block's scale lies.
#include "ops/kv/codec.h"

#include <stdio.h>
#include <string.h>

#define PLAIN(id, tensor)                                                                          \
    static void decode_##id(const unsigned char *codes, const unsigned char *scales, float *x,     \
                            int64_t n) {                                                           \
        (void)scales;                                                                              \
        quant_format(tensor)->dequantize(codes, x, n);                                             \
    }                                                                                              \
    static void encode_##id(const float *x, unsigned char *codes, unsigned char *scales,           \
                            int64_t n) {                                                           \
        (void)scales;                                                                              \
        quant_format(tensor)->quantize(x, codes, n);                                               \
    }

PLAIN(KV_F16, TYPE_F16)
PLAIN(KV_F32, TYPE_F32)
PLAIN(KV_BF16, TYPE_BF16)

// 32 codes and an fp16 scale; a value is scale times code.
static void decode_KV_Q8_0(const unsigned char *codes, const unsigned char *scales, float *x,
                           int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, scales + i / 32 * 2, sizeof h);
        x[i] = f16_to_f32(h) * (float)(int8_t)codes[i];
    }
}

static void encode_KV_Q8_0(const float *x, unsigned char *codes, unsigned char *scales, int64_t n) {
    for (int64_t i = 0; i < n; i += 32) {
        unsigned char block[34]; // of a file: the scale, then the codes
        quant_format(TYPE_Q8_0)->quantize(x + i, block, 32);
        memcpy(scales + i / 32 * 2, block, 2);
        memcpy(codes + i, block + 2, 32);
    }
}

static const struct kv_codec rows[] = {
#define ROW(id, name, type, block, code_bytes, scale_bytes)                                        \
    [id] = {name, type, block, code_bytes, scale_bytes, decode_##id, encode_##id},
    KV_CODECS(ROW)
#undef ROW
};

const struct kv_codec *kv_codec_of(enum kv_codec_id id) {
    return (unsigned)id < KV_CODEC_COUNT ? &rows[id] : NULL;
}

// "f16, f32, bf16 or q8_0".
static void list_names(char *text, size_t size) {
    size_t at = 0;
    for (int i = 0; i < KV_CODEC_COUNT && at < size; i++) {
        const char *before = i == 0 ? "" : i + 1 < KV_CODEC_COUNT ? ", " : " or ";
        at += (size_t)snprintf(text + at, size - at, "%s%s", before, rows[i].name);
    }
}

int kv_codec_by_name(const char *name, const char *what, enum kv_codec_id *out, struct err *e) {
    char names[128];
    for (int i = 0; i < KV_CODEC_COUNT; i++)
        if (!strcmp(rows[i].name, name)) {
            *out = (enum kv_codec_id)i;
            return 0;
        }
    list_names(names, sizeof names);
    return err_set(e, ERR_USAGE, "%s is %s, not '%.40s'", what, names, name);
}

int kv_codec_check(enum kv_codec_id id, struct err *e) {
    char names[128];
    if (kv_codec_of(id))
        return 0;
    list_names(names, sizeof names);
    return err_set(e, ERR_UNSUPPORTED, "keys and values can be stored as %s, not as codec %d",
                   names, (int)id);
}

int64_t kv_codec_bytes(enum kv_codec_id id, int64_t n) {
    const struct kv_codec *c = &rows[id];
    return n / c->block * (c->code_bytes + c->scale_bytes);
}
