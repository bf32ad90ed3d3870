// SPDX-License-Identifier: Apache-2.0
// What a checkpoint holds, as host memory in pieces that several RAM copies share: pages of keys
// and values (of the model's groups and of its attachments'), counted once however many refer to
// them, the other bytes of devices, and the small serial form that says how much there is
// (state/checkpoint.h). RAM copies are the unit of the prefix cache, in memory and in files.
// They do not hold the tokens. One thread owns RAM copies and their blocks; what is in them does
// not change, so others may read it.
#ifndef COPPICE_STATE_RAM_COPY_H
#define COPPICE_STATE_RAM_COPY_H

#include "state/checkpoint.h"
#include "state/host_blocks.h"

enum { RAM_COPY_GROUPS = 32 }; // at most, of the model and of all attachments

struct ram_copy_page {
    int64_t refs;
    int64_t holds; // of these RAM copies that are held (ram_copy_hold)
    size_t bytes;
    unsigned char *data; // a block
};

// Pages of one group, as a struct kv has them.
struct ram_copy_group {
    size_t page_bytes;
    int64_t len;                  // positions whose keys and values are there,
    int64_t first, n_pages;       // on pages first .. n_pages-1
    struct ram_copy_page **pages; // [n_pages], NULL below first
};

struct ram_copy {
    int64_t len, sparse_end; // as of the checkpoint
    int n_groups;
    struct ram_copy_group groups[RAM_COPY_GROUPS];
    unsigned char *form; // [form_bytes]
    size_t form_bytes;
    unsigned char *rest; // [rest_bytes] a block; NULL: none
    size_t rest_bytes;
    bool foreign;    // it comes from a file and has not been put back yet
    uint64_t ticket; // of the copies that fill it, until ram_copy_settle; 0: they have ended
    int users;       // jobs of other threads that read or fill it
};

// A RAM copy whose first tokens are the same as a checkpoint's, or as another RAM copy's: whole
// pages within them are shared. Zeroed: none.
struct ram_copy_base {
    const struct ram_copy *ram_copy;
    int64_t common; // tokens
};

// The shape of a checkpoint's RAM copy, which is one without pages and rest; free(shape->form)
// unless it is taken over. layouts: NULL, or those of its groups' pages
// [RAM_COPY_GROUPS], which are the model's. ERR_STATE, ERR_MEMORY.
int ram_copy_shape(const struct checkpoint *from, struct ram_copy *shape,
                   const struct kv_layout **layouts, struct err *e);

// Bytes of blocks and other memory that a RAM copy of a shape will take at most.
int64_t ram_copy_needs(const struct ram_copy *shape, const struct ram_copy_base *base);
// Whether ram_copy_make would find its blocks without waiting for the system; if not, they are
// being made (host_blocks_ready).
bool ram_copy_ready(const struct ram_copy *shape, const struct ram_copy_base *base,
                    struct host_blocks *b);
// Has blocks made for RAM copies that are yet to come, of `bytes` in all: half of it for what is
// not pages, `rest` bytes of a RAM copy (0: nothing is), the other for pages of all groups alike.
// shape: of a checkpoint of no tokens. Nothing where memory is not pinned.
void ram_copy_prepare(const struct ram_copy *shape, struct host_blocks *b, size_t rest,
                      int64_t bytes);

// A RAM copy without its bytes, to be filled: pages that the base has are shared, the others and
// rest are blocks of undefined content. The shape's form is taken over. ERR_MEMORY.
int ram_copy_make(struct ram_copy **out, const struct ram_copy *shape,
                  const struct ram_copy_base *base, struct host_blocks *b, struct err *e);

// Begins to copy the checkpoint whose shape m was made of into pages of its own. It must stay valid
// until ram_copy_settle has returned, also after an error; only then is the RAM copy whole. x: of
// the copier. ERR_STATE, ERR_MEMORY, ERR_DEVICE.
int ram_copy_take(struct ram_copy *m, struct checkpoint *from, struct copier *copier,
                  struct exec *x, struct err *e);
// Whether its copies have ended, so that ram_copy_settle does not wait.
bool ram_copy_settled(const struct ram_copy *m, struct copier *copier);
// Waits for its copies, by the copier that was given to ram_copy_take. ERR_DEVICE: they failed.
int ram_copy_settle(struct ram_copy *m, struct copier *copier, struct err *e);

// Bytes that are freed with it: its own, with those pages that are not shared.
int64_t ram_copy_own_bytes(const struct ram_copy *m);
// more: 1: it is held from now on, -1: it is not any more. Bytes, its own and those of pages, that
// nothing held before, or that nothing holds now.
int64_t ram_copy_hold(struct ram_copy *m, int more);
// Whether any page is of both.
bool ram_copy_shares(const struct ram_copy *a, const struct ram_copy *b);
// NULL is allowed. Its blocks may be another's at once, so nothing is freed, ever, where copies of
// it have not been settled or it has users, which is a fault of the caller: false.
bool ram_copy_free(struct ram_copy *m, struct host_blocks *b);

// A checkpoint again, of tokens[0..len). Errors as of checkpoint_get. What is besides the pages of
// a foreign one is looked through for what is no number first; pages are when they are read
// (engine/cache/disk.h).
int ram_copy_restore(struct ram_copy *m, const struct sequence_spec *spec, const int32_t *tokens,
                     struct checkpoint **out, struct err *e);

// Whether a page was made for this RAM copy, and is to be filled where it is foreign.
static inline bool ram_copy_page_own(const struct ram_copy_page *p) {
    return p->refs == 1;
}

#endif
