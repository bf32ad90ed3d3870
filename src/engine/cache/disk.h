// SPDX-License-Identifier: Apache-2.0
// Entries of the prefix cache as files of a folder. A file is a record (state/record.h), relative
// to another file that begins alike, its base. Files appear whole and never change, so that a
// process may end at any moment. A thread reads and writes them concurrently with the engine. One
// process at a time writes in a folder, which holds the folder's lock; others only read. It does
// not depend on the tree and the budget; the functions of files may be called by any thread.
#ifndef COPPICE_ENGINE_CACHE_DISK_H
#define COPPICE_ENGINE_CACHE_DISK_H

#include "formats/gguf/gguf.h"
#include "state/record.h"

// Writes a record whole or not at all (base/file.h); at most 64 MiB wait to be brought to the disk.
// ERR_IO, ERR_MEMORY.
int cache_file_write(struct record *r, const struct ram_copy *m, const char *path,
                     const struct record_pause *pause, struct err *e);
// Reads a head, but not the identity. Errors as of record_read; ERR_IO.
int cache_file_head(struct record *r, const char *path, struct err *e);

// Bytes to be read, and their hash.
struct cache_piece {
    void *to;
    size_t bytes;
    int64_t at;
    uint64_t sum;
    const struct kv_layout *page; // of a page, whose values have to be numbers; NULL: of no page
};
// By several threads where there is much. ERR_IO; ERR_FORMAT: damaged; ERR_UNSUPPORTED: of a newer
// version.
int cache_file_read(const char *path, const struct cache_piece *pieces, int64_t n, struct err *e);

struct cache_disk;

struct cache_disk_options {
    const char *dir;
    // Called in the thread when a job has ended. Must not block.
    void (*wake)(void *arg);
    void *wake_arg;
};

// Makes the folder where it is missing and starts the thread. Where the folder cannot be written,
// or another process writes there, it is only read, and *e says why, with 0 returned. ERR_IO: there
// is no folder that can be read. ERR_MEMORY.
int cache_disk_open(struct cache_disk **out, const struct cache_disk_options *o, struct err *e);
void cache_disk_stop(struct cache_disk *d);  // does what has been queued, and ends the thread
void cache_disk_close(struct cache_disk *d); // after that; NULL is allowed
bool cache_disk_writes(const struct cache_disk *d);

// The path of a file, into path[CACHE_PATH].
enum { CACHE_PATH = 4096 };
void cache_disk_path(const struct cache_disk *d, uint64_t kind, uint64_t key, char *path);

// Loads and scans come before all others, also between the pieces of a file that is being written.
enum cache_job_kind {
    CACHE_IDENTIFY, // a model's file: what the kind of files goes by
    CACHE_SCAN,     // what lies in the folder, with heads; remains of killed writers are removed
    CACHE_WRITE,
    CACHE_LOAD,
    CACHE_REMOVE,
    CACHE_TOUCH, // it was of use
};

// The files of the folder.
struct cache_found {
    uint64_t kind, key;
    int64_t bytes, age;  // size; seconds since it was last of use
    struct record *head; // of the job's kind and not known yet; NULL: others, or it cannot be used
    char *why;           // for which reason, or NULL
    bool newer;          // a newer version can use it
};
struct cache_scan {
    uint64_t *known; // [n_known] keys of the job's kind, rising
    int64_t n_known;
    bool changed; // look only if files may have come or gone since the last scan
    struct cache_found *found;
    int64_t n;
    bool same; // they have not
};
void cache_scan_fini(struct cache_scan *s); // heads that are taken over are NULL

// Pieces of one file, for CACHE_LOAD.
struct cache_load {
    uint64_t key;
    int64_t first, n; // of the job's pieces
};

// What it points at must not change until it has ended; the owner frees it then.
struct cache_job {
    enum cache_job_kind what;
    uint64_t kind, key;        // of the file; of LOAD and SCAN the kind only
    struct record *file;       // WRITE
    struct ram_copy *ram_copy; // WRITE: what is written; LOAD: what is filled
    struct cache_piece *pieces;
    struct cache_load *loads; // [n_loads]
    int n_loads;
    struct cache_scan scan;
    const struct gguf *gguf; // IDENTIFY
    uint64_t content;        // content_whole of it; 0: it was ended before
    uint64_t stamp;          // content_stamp of what was read
    void *owner;
    uint64_t failed; // LOAD: the file that could not be read
    int rc;
    struct err err;
    struct cache_job *next;
};
void cache_disk_queue(struct cache_disk *d, struct cache_job *j);
struct cache_job *cache_disk_ended(struct cache_disk *d); // one that has ended; NULL: none
int cache_disk_waiting(struct cache_disk *d);             // jobs that have not ended
void cache_disk_wait(struct cache_disk *d);               // until there are none

#endif
