// SPDX-License-Identifier: Apache-2.0
// How a device cuts up the work of one attention call. Host only, and no device in it.
//
// A row at position p takes its keys in chunks of 64 positions, in order. Chunks form parts, by
// absolute position: of one chunk below 512, of two below 2,048, of four below 8,192, of eight
// below 32,768, of 16 below 65,536 and so on, as far as c(p) = 64 max(0, floor(p / 64) - 1), and
// one last part from c(p) to p: short parts where there are few keys to share out, long ones where
// the results of parts cost more than balance. Within a part a running softmax goes from chunk to
// chunk; the results of parts are folded from left to right. Nothing in this depends on other rows
// (rule E2), so parts may be computed by one block one after the other, or by many blocks and
// folded later: same bits.
#ifndef COPPICE_OPS_ATTEND_PLAN_H
#define COPPICE_OPS_ATTEND_PLAN_H

#include "ops/args/args.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    ATTEND_CHUNK = KV_PAGE, // keys
    ATTEND_TILE = 16,       // (row, head) pairs of one matrix instruction
};

#ifdef __CUDACC__
#define ATTEND_FN static __host__ __device__ inline
#else
#define ATTEND_FN static inline
#endif

// The part that a chunk is in, and the chunk that a part begins with: 8 parts of one chunk, 12 of
// two, 24 of four, 48 of eight, then 32 of each doubled size.
ATTEND_FN int32_t attend_part(int32_t chunk) {
    if (chunk < 512) {
        int32_t size = chunk < 8 ? 0 : chunk < 32 ? 1 : chunk < 128 ? 2 : 3; // logarithm
        return (chunk >> size) + (4 << size) - 4;
    }
    int32_t level = 9;
    while (chunk >> (level + 1))
        level++;
    return 92 + 32 * (level - 9) + ((chunk - (1 << level)) >> (level - 5));
}

ATTEND_FN int32_t attend_part_begin(int32_t part) {
    if (part < 92) {
        int32_t size = part < 8 ? 0 : part < 20 ? 1 : part < 44 ? 2 : 3;
        return (part + 4 - (4 << size)) << size;
    }
    int32_t level = 9 + (part - 92) / 32;
    return (1 << level) + ((part - 92) % 32 << (level - 5));
}

// The parts below a split are numbers 0 .. attend_parts(split) - 1.
ATTEND_FN int32_t attend_parts(int32_t split) {
    return split > 0 ? attend_part(split / ATTEND_CHUNK - 1) + 1 : 0;
}

// Whether a block that takes all parts of a row folds before a chunk: where a part below the split
// begins and where the last part does, which has no other begin in it.
ATTEND_FN bool attend_folds(int32_t chunk, int32_t split) {
    int32_t at = chunk * ATTEND_CHUNK;
    return at == split || (at < split && attend_part_begin(attend_part(chunk)) == chunk);
}

// The visible positions of a row. Keys from split on are its last part.
struct attend_row {
    int32_t pos, first, last, split;
};

enum attend_kind {
    ATTEND_SHARED, // a run of parts below the rows' splits
    ATTEND_LAST,   // the rows' last parts
    ATTEND_WHOLE,  // all parts of the rows, folded in the block
};

// Work of one block and kv head. A pair x of a list of rows is row list[x / group] and query head
// x % group of the kv head.
struct attend_item {
    int32_t kind;
    int32_t list, pair, n_pairs; // begin of the list of rows, and pairs of it
    int32_t pages, len;          // begin of the sequence's pages; committed positions
    int32_t path, n_path;        // rows that hold the keys len, len + 1, ...
    int32_t chunk, end;          // chunks, absolute
};

// The keys of a path that ATTEND_WHOLE items of it see: chunks [chunk, end), of which `before`
// others of the plan's come first.
struct attend_text {
    int32_t pages, len, path, n_path; // as in its items
    int32_t chunk, end, before;
};

// Memory that grows and is used again.
struct attend_buffer {
    void *p;
    int64_t bytes;
};

// The tables of one launch: built on the host, sent as one piece. Zeroed before the first build,
// and freed by attend_plan_fini; in between, builds use its memory again.
struct attend_plan {
    struct attend_buffer tables, work, found; // all tables; what building needs; items on their way
    unsigned char *blob;                      // in `tables`
    size_t bytes;
    size_t rows, list, path, items, pages, store; // offsets into the blob
    size_t texts;                                 // the same; whole plans have them
    int64_t begin, end;                           // rows
    int64_t n_pages;                              // of all sequences
    int32_t n_items, n_texts;
    int32_t text_chunks, longest_text; // chunks of all texts, of one
    int32_t slots, part0; // partial results kept for a row; part of slot 0. The last is the last
    int32_t tiles;        // most tiles of pairs in an item
    bool whole;
};

// How the kernel takes the work: tiles of an item at most, with ATTEND_WHOLE and else, and blocks
// that the device runs at once.
struct attend_limits {
    int tiles_whole, tiles_split, blocks;
};

// Cuts up rows [begin, end). False: no memory.
bool attend_plan_build(struct attend_plan *p, const struct attend_args *a, const struct rows *r,
                       int64_t begin, int64_t end, bool whole, const struct attend_limits *m);
void attend_plan_fini(struct attend_plan *p);
// Whether there are enough long paths to fill half the device's processors with ATTEND_WHOLE items.
bool attend_plan_whole(const struct attend_args *a, const struct rows *r,
                       const struct attend_limits *m, int processors);

#ifdef __cplusplus
}
#endif

#endif
