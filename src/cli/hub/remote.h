// SPDX-License-Identifier: Apache-2.0
// The Hub's interface over HTTP: what a repository holds, and its files as downloads into the
// cache, checked by their SHA-256.
#ifndef COPPICE_CLI_HUB_REMOTE_H
#define COPPICE_CLI_HUB_REMOTE_H

#include "base/sha256.h"
#include "cli/hub/cache.h"
#include "cli/hub/transfer.h"

// Zeroed is valid.
struct hub {
    struct transfer *t;
    struct str endpoint, token;
};
// ERR_UNSUPPORTED without libcurl, ERR_USAGE for a token that is none.
int hub_open(struct hub *h, struct err *e);
void hub_close(struct hub *h);

// Files and commit of a revision. A sentence for a repository that is not there, private or gated.
int hub_list(struct hub *h, const struct hub_name *n, struct hub_files *out, struct err *e);

// A file on its way into the cache. Zeroed is valid.
struct hub_download {
    const struct hub_name *name;
    const char *commit;
    struct hub_file file; // borrowed
    bool there;           // its blob is complete
    int lock, fd;         // descriptors and 1
    int64_t have;         // bytes of it
    struct sha256 hash;   // of these
    void (*progress)(void *arg);
    void *arg;
};
// Locks the file, waits for who fetches it, and finds what has come of it.
int hub_download_open(struct hub_download *d, struct err *e);
// Fetches at least the first `until` bytes.
int hub_download_fetch(struct hub *h, struct hub_download *d, int64_t until, struct err *e);
// All of it is there: checks the hash and puts it into the snapshot. ERR_MISMATCH: the hash is
// another one; the bytes are removed.
int hub_download_finish(struct hub_download *d, struct err *e);
void hub_download_close(struct hub_download *d); // what has come stays
// Before that: forgets a beginning of at most `most` bytes, of a file that is not wanted.
void hub_download_drop(struct hub_download *d, int64_t most);

#endif
