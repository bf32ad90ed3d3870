// SPDX-License-Identifier: Apache-2.0
// Where keys and values lie within a page of one KV group. A page holds KV_PAGE positions of all
// layers of the group; a layer has up to four planes, one after the other: codes of K, scales of
// K, codes of V, scales of V, each [kv head][slot][bytes of a row]. Codes of a row are therefore
// aligned as their own size allows, and rows of a head follow each other. All backends share this,
// so that pages can move between them.
#ifndef COPPICE_OPS_KV_LAYOUT_H
#define COPPICE_OPS_KV_LAYOUT_H

#include "ops/kv/codec.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __CUDACC__
#define KV_FN static __host__ __device__ inline
#else
#define KV_FN static inline
#endif

enum { KV_PAGE = 64 };

// The layout of a group.
struct kv_shape {
    int n_layers, n_heads; // kv heads
    int dk, dv;            // values of a head of K, of V
    bool v_in_k;           // V is the first dv values of K and is not stored
    enum kv_codec_id codec_k, codec_v;
};

// The planes of K or of V in a layer: bytes from the layer's begin to head 0, slot 0, and bytes of
// a row.
struct kv_plane {
    int64_t codes, scales;
    int64_t code_row, scale_row; // scale_row 0: no scales
};

struct kv_layout {
    struct kv_shape s;
    struct kv_plane k, v;   // with v_in_k both are the same place
    int rotate_k, rotate_v; // values of a group that is stored rotated (rotate.h); 0: as they are
    int64_t layer_bytes;    // one layer of one page
    int64_t page_bytes;     // = n_layers * layer_bytes
};

// ERR_UNSUPPORTED for an unknown codec, heads that are no whole blocks of theirs, and a V in K that
// is longer than K or has another codec.
int kv_layout_init(struct kv_layout *l, const struct kv_shape *s, struct err *e);

// Bytes that one position takes in one head of one layer, K and V together.
int64_t kv_layout_row(const struct kv_layout *l);

// A head row: its codes and its scales.
struct kv_row {
    unsigned char *codes, *scales;
};

// The row of K (&l->k) or V (&l->v) of a layer, head and slot.
KV_FN struct kv_row kv_row_at(const struct kv_layout *l, const struct kv_plane *p,
                              unsigned char *page, int layer, int head, int slot) {
    int64_t row = (int64_t)head * KV_PAGE + slot;
    unsigned char *at = page + layer * l->layer_bytes;
    struct kv_row r = {at + p->codes + row * p->code_row, at + p->scales + row * p->scale_row};
    return r;
}

#ifdef __cplusplus
}
#endif

#endif
