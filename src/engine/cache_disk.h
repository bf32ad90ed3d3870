// SPDX-License-Identifier: Apache-2.0
// A folder of the prefix cache, and the thread that reads and writes in it beside the engine. One
// process at a time writes there, which holds the folder's lock; others only read. Files appear
// whole and never change, so that a process may end at any moment. It knows no tree and no budget.
#ifndef COPPICE_ENGINE_CACHE_DISK_H
#define COPPICE_ENGINE_CACHE_DISK_H

#include "engine/cache_file.h"

struct cache_disk;

struct cache_disk_options {
    const char *dir;
    uint64_t kind; // of the files that are this process's own kind (struct cache_file)
    // Told in the thread that a job has ended. Must not block.
    void (*wake)(void *arg);
    void *wake_arg;
};

// Makes the folder where it is missing and starts the thread. Where the folder cannot be written,
// or another process writes there, it is only read, and *e says why, with 0 returned. ERR_IO: there
// is no folder that can be read. ERR_MEMORY.
int cache_disk_open(struct cache_disk **out, const struct cache_disk_options *o, struct err *e);
void cache_disk_stop(struct cache_disk *d);  // ends what has been queued, and the thread
void cache_disk_close(struct cache_disk *d); // behind that; NULL is allowed
bool cache_disk_writes(const struct cache_disk *d);

// What lies in the folder.
struct cache_found {
    uint64_t kind, key;
    int64_t bytes, age; // size; seconds since it was last of use
};
// *out: free() it. Remains of writers that were killed are removed.
int64_t cache_disk_list(struct cache_disk *d, struct cache_found **out);
// Whether files may have come or gone since cache_disk_list.
bool cache_disk_changed(struct cache_disk *d);
// The path of a file, into path[CACHE_PATH].
enum { CACHE_PATH = 4096 };
void cache_disk_path(const struct cache_disk *d, uint64_t kind, uint64_t key, char *path);

enum cache_job_kind { CACHE_WRITE, CACHE_LOAD, CACHE_REMOVE, CACHE_TOUCH };

// Pieces of one file, for CACHE_LOAD.
struct cache_load {
    uint64_t key;
    int64_t first, n; // of the job's pieces
};

// What it points at must not change until it has ended; the owner frees it then.
struct cache_job {
    enum cache_job_kind what;
    uint64_t kind, key;      // of the file; of LOAD: loads[] have them
    struct cache_file *file; // WRITE
    struct image *image;     // WRITE: what is written; LOAD: what is filled
    struct cache_piece *pieces;
    struct cache_load *loads; // [n_loads]
    int n_loads;
    void *owner;
    uint64_t failed; // LOAD: the file that could not be read
    int rc;
    struct err err;
    struct cache_job *next;
};
void cache_disk_queue(struct cache_disk *d, struct cache_job *j); // in order
struct cache_job *cache_disk_ended(struct cache_disk *d);         // one that has ended; NULL: none
int cache_disk_waiting(struct cache_disk *d);                     // jobs that have not ended

#endif
