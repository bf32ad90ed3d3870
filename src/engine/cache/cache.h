// SPDX-License-Identifier: Apache-2.0
// The prefix cache: states of texts that have been run, found again by the longest beginning that a
// new prompt shares with them. Entries are RAM copies of checkpoints (state/ram_copy.h) in host
// memory, on a radix tree over token ids; pages that texts share are there once. A budget is kept
// to the byte; what is worth least goes first. What comes out of it has the same bits as what would
// be run again, so that it changes when an answer comes and nothing else (docs/prefix-cache.md).
// All of it is the engine thread's.
#ifndef COPPICE_ENGINE_CACHE_CACHE_H
#define COPPICE_ENGINE_CACHE_CACHE_H

#include "engine/session/session.h"

enum { CACHE_RAM_AUTO = -1 };

struct cache_options {
    int64_t ram;  // bytes of host memory at most; 0: nothing is kept but what is held;
                  // CACHE_RAM_AUTO is its owner's to replace by what cache_usual_ram says
    int64_t host; // the same besides, for states that are held (cache_put_held); 0: none are
    int64_t grid; // tokens between checkpoints within a prompt; 0: by what one takes
    // NULL, or a folder where entries are kept as files too, and bytes of files there at most.
    const char *dir;
    int64_t disk;
    // Called with messages for the user: engine thread. And that a job on the disk has ended: any
    // thread, must not block.
    void (*note)(void *arg, const char *sentence);
    void *note_arg;
    void (*wake)(void *arg);
    void *wake_arg;
};

// Why a prompt had to be run from where it was.
enum cache_why {
    CACHE_OFF,      // there is no cache, or the request may not use it
    CACHE_HIT,      // all that was known of it was used
    CACHE_NEW,      // nothing that is kept begins like it
    CACHE_CHANGED,  // it is the same up to `common` and another token there
    CACHE_EVICTED,  // the state at `common` was dropped for others
    CACHE_SETTINGS, // the state is of another rule (--sparse-prefill), or of a reply with one
    CACHE_BETWEEN,  // no checkpoint lies nearer to `common`
    CACHE_FAILED,   // the state could not be put back
};

struct cache_report {
    enum cache_why why;
    int64_t cached; // tokens of the prompt, first ones, that came from the cache
    int64_t common; // tokens that it shares with the nearest text that is known, at least `cached`
    int32_t here, there; // the first that differ, of the prompt and of that text; -1: it ends there
};

struct cache_stats {
    int64_t entries, bytes, limit;         // that are there; of memory now, and at most
    int64_t held, held_limit, holds;       // bytes that are held, and at most; states held so far
    int64_t pages, file_pages;             // of keys and values, in memory and in files
    int64_t lookups, hits;                 // prompts looked up, of these found some of
    int64_t put, evicted, refused;         // entries made, dropped for others, without room
    int64_t files, disk_bytes, disk_limit; // entries that are files; of all in the folder
    int64_t written, loaded, removed, failed; // files; jobs that failed
    int64_t weighed; // times that an entry was looked at to find the one that is worth least
};

// Bytes that a cache may take where nobody says how many: four times the model's size, from 256 MiB
// to 8 GiB, and at most an eighth of what the model leaves of the machine's memory (of an eighth of
// it, where that is more). machine: bytes, 0: not known.
int64_t cache_usual_ram(int64_t model, int64_t machine);

struct cache;

// Of a session's sequences, which must outlive it. ERR_MEMORY, ERR_DEVICE. ERR_LIMIT: o->host is
// less than any state takes.
int cache_create(struct cache **out, struct session *s, const struct cache_options *o,
                 struct err *e);
void cache_destroy(struct cache *c); // NULL is allowed

// Begins to make memory for what is yet to come, where that is slow (pinned): as much as may be
// used, 2 GiB at most. Once, after cache_create; a thread does it.
void cache_prepare(struct cache *c);

// Whether cache_restore of the same can begin now; false: a file is being read, so call again when
// `wake` has been called.
bool cache_ready(struct cache *c, const int32_t *ids, int64_t n, int64_t sparse_end);

// Puts the longest known beginning of ids[0..n) of fewer than n tokens into seq, which is empty
// where there is none. sparse_end: as of a request, never 0.
struct cache_report cache_restore(struct cache *c, const int32_t *ids, int64_t n,
                                  int64_t sparse_end, struct sequence *seq);

// Keeps a checkpoint, which is the cache's from now on, as far as there is room.
void cache_put(struct cache *c, struct checkpoint *p);

// A state that stays in memory until it is released, of a text that will go on. Pages that several
// have are held once. Zeroed: nothing is held.
struct cache_hold {
    struct cache_entry *entry; // NULL: nothing is held, or the device has made it invalid
    struct cache_hold *next;   // of the same entry
};
// cache_put, and what it keeps is held, as far as there is room; false: it is not. h must be where
// it is until it is released, which the caller does before the cache is destroyed.
bool cache_put_held(struct cache *c, struct checkpoint *p, struct cache_hold *h);
void cache_release(struct cache *c, struct cache_hold *h); // nothing where nothing is held
// Whether prompts are looked up and states of texts kept; if not, it has what is held only.
bool cache_keeps(const struct cache *c);

// Positions of a prompt at which checkpoints pay, rising, all above `from`: of
// positions[0..n_positions), where texts are likely to differ, and a grid. *out: free() it; 0 where
// there are none.
struct cache_positions {
    const int64_t *at; // [n], rising
    int n;
};
int cache_checkpoint_positions(struct cache *c, const int32_t *ids, int64_t n, int64_t from,
                               const struct cache_positions *positions, int64_t **out);

// Sees to copies and to work on files that have ended; copies that are under way hold memory of the
// device.
void cache_poll(struct cache *c);
void cache_flush(struct cache *c); // waits for them

struct cache_stats cache_stats(const struct cache *c);

#endif
