// SPDX-License-Identifier: Apache-2.0
// What a scorer has computed of the begins of texts, in host memory within a limit: for each layer
// the keys of its score and the keys, values and block means of its attention, in whole blocks of
// 128 tokens. They depend on the tokens before them alone, so a text that begins with the same
// tokens takes them as they are and gets the scores that it would get anyway, bit for bit. It holds
// bytes and compares tokens; what the bytes are is the scorer's concern (score.c).
#ifndef COPPICE_COMPRESS_SCORE_KEPT_H
#define COPPICE_COMPRESS_SCORE_KEPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SCORE_KEPT_TEXTS = 8, SCORE_KEPT_BLOCK = 128 };

enum score_kept_part { SCORE_KEPT_KEYS, SCORE_KEPT_PAGES, SCORE_KEPT_MEANS, SCORE_KEPT_PARTS };

struct score_kept_text {
    int64_t blocks;        // that are whole
    int32_t *ids;          // [blocks * 128]
    unsigned char **parts; // [layers][SCORE_KEPT_PARTS], each [blocks][bytes of the part]
    uint64_t used;
};

struct score_kept {
    int layers;
    size_t bytes[SCORE_KEPT_PARTS]; // of a block in a layer; the last layer has keys alone
    int64_t limit;                  // bytes of all texts; 0: nothing is kept
    struct score_kept_text texts[SCORE_KEPT_TEXTS];
    int n;
    uint64_t clock;
};

// Bytes of a block in all layers, with its tokens.
int64_t score_kept_bytes(const struct score_kept *k); // that texts have now
size_t score_kept_part(const struct score_kept *k, int layer, enum score_kept_part part);
void score_kept_fini(struct score_kept *k);

// The text that has the most whole blocks in common with ids[n], and how many, `max` at most; NULL
// and 0: none has. Valid until the next score_kept_room or _drop.
struct score_kept_text *score_kept_find(struct score_kept *k, const int32_t *ids, int64_t n,
                                        int64_t max, int64_t *common);
// Makes room for the first blocks of a text (ids[blocks * 128]) of which `common` are those of
// `from` (NULL where common is 0), which are in it already; the caller fills the others, or drops
// it. A text that is continued, or of which less than half is left, gives its memory; others that
// were not used for longest go. At most as many blocks as the limit has room for, which ->blocks
// says; NULL: none, or no more than a quarter of `blocks`, or no memory.
struct score_kept_text *score_kept_room(struct score_kept *k, struct score_kept_text *from,
                                        int64_t common, const int32_t *ids, int64_t blocks);
void score_kept_drop(struct score_kept *k, struct score_kept_text *t);
// A part of a layer from a block on.
unsigned char *score_kept_at(const struct score_kept *k, const struct score_kept_text *t, int layer,
                             enum score_kept_part part, int64_t block);

#endif
