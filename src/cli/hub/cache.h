// SPDX-License-Identifier: Apache-2.0
// The Hub's cache on disk, in the layout of huggingface_hub, so that what other tools fetched is
// found and what this program fetches is found by them:
//
//     models--OWNER--REPO/refs/REVISION               the commit that it was
//     models--OWNER--REPO/snapshots/COMMIT/FILE       a link to the blob
//     models--OWNER--REPO/blobs/ETAG                  the bytes; ETAG.incomplete while they come
//     .locks/models--OWNER--REPO/ETAG.lock            locked (flock) by who fetches it
//
// It lies in HF_HUB_CACHE, else in "hub" below HF_HOME, which is huggingface below XDG_CACHE_HOME
// or ~/.cache.
#ifndef COPPICE_CLI_HUB_CACHE_H
#define COPPICE_CLI_HUB_CACHE_H

#include "cli/hub/names.h"

// Folders without a slash at the end. Nothing where there is no home.
void hub_home(struct str *out);
void hub_cache_folder(struct str *out);

// The path of something of a repository: what is "snapshots", a commit or "" and a file or "", ...
// Appends. Nothing where there is no cache.
void hub_cache_path(struct str *out, const char *repo, const char *what, const char *a,
                    const char *b);
// Makes the folders that a path goes through. ERR_IO.
int hub_make_folders(const char *path, struct err *e);

// The path of the first file that a name means, complete and in the cache, of its revision or where
// that has none, and it is main, of the newest snapshot; where there is none, nothing is appended.
// as_draft: the name means a draft. ERR_MEMORY.
int hub_cache_find(const struct hub_name *n, bool as_draft, struct str *path, struct err *e);
// OWNER/REPO of a path in a snapshot of the cache's layout, wherever that is.
bool hub_cache_repo(const char *path, char repo[HUB_NAME_BYTES]);

// Locks a blob; waits for who holds it, or with wait false gives *fd -1. ERR_IO, ERR_CANCELLED.
int hub_cache_lock(const char *repo, const char *etag, bool wait, int *fd, struct err *e);
// Puts a blob that is complete into a snapshot. ERR_IO, ERR_MEMORY.
int hub_cache_link(const char *repo, const char *commit, const struct hub_file *f, struct err *e);
// The commit that a name's revision was when it was fetched; false where that is not known.
bool hub_cache_commit(const struct hub_name *n, char commit[HUB_HASH_BYTES]);
// Writes down which commit a revision was.
int hub_cache_note(const struct hub_name *n, const char *commit, struct err *e);

// All repositories of models in the cache, by name; a result other than 0 ends it.
typedef int hub_repo_fn(void *arg, const char *repo, struct err *e);
int hub_cache_each(hub_repo_fn *fn, void *arg, struct err *e);
// All snapshots of one, newest first.
typedef int hub_snapshot_fn(void *arg, const char *commit, struct err *e);
int hub_cache_snapshots(const char *repo, hub_snapshot_fn *fn, void *arg, struct err *e);
// The files of one snapshot that are there (a link without its blob is not); out->unread: what
// could not be looked into.
int hub_cache_list(const char *repo, const char *commit, struct hub_files *out, struct err *e);
// Bytes in downloads of a repository that are not complete.
int64_t hub_cache_unfinished(const char *repo);

// Removes the links of some files of a snapshot and their blobs where no other link leads there;
// *freed grows by their bytes. With nothing left, the repository's folder goes. ERR_IO, also where
// something of a snapshot cannot be read, which may be such a link.
int hub_cache_remove(const char *repo, const struct hub_files *f, const struct hub_choice *some,
                     int64_t *freed, struct err *e);
// Removes what is left of downloads that nobody fetches at present.
void hub_cache_clean(const char *repo, int64_t *freed);

#endif
