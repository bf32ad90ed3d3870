// SPDX-License-Identifier: Apache-2.0
// Names of models on the Hugging Face Hub, OWNER/REPO[@REVISION][:QUANT or FILE], and which files
// of a repository such a name means. Nothing here reads a file or a network.
#ifndef COPPICE_CLI_HUB_NAMES_H
#define COPPICE_CLI_HUB_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

enum { HUB_NAME_BYTES = 256, HUB_HASH_BYTES = 65, HUB_LABEL_BYTES = 64, HUB_PARTS_MAX = 512 };

struct hub_name {
    char repo[HUB_NAME_BYTES];     // OWNER/REPO
    char revision[HUB_NAME_BYTES]; // branch, tag or commit; main
    char want[HUB_NAME_BYTES];     // a quantisation or a file; empty: the usual one
};

// Whether a text is written as a name of the Hub and not as a path: two words with one slash
// between them, the second of which is no *.gguf, or an address of hf.co or huggingface.co.
bool hub_name_like(const char *text);
// ERR_USAGE where it is none.
int hub_name_read(struct hub_name *n, const char *text, struct err *e);

// A file of a repository, or of its snapshot in the cache.
struct hub_file {
    char *name;                // with folders, never out of the snapshot
    char etag[HUB_HASH_BYTES]; // SHA-256 of what lies in LFS, Git's hash of other files
    int64_t size;
};
struct hub_files {
    char commit[HUB_HASH_BYTES];
    struct hub_file *at;
    int64_t n, cap;
    char *unread; // of a folder in the cache: what of it could not be read and why, or NULL
};
// Passes over names that would lead out of a folder. ERR_MEMORY.
int hub_files_add(struct hub_files *f, const char *name, const char *etag, int64_t size,
                  struct err *e);
void hub_files_fini(struct hub_files *f);
// Whether a text is a hash in lower-case hexadecimal digits (40 or 64).
bool hub_is_hash(const char *text);

// "Q4_K_M" of Qwen3-4B-Q4_K_M.gguf, in capitals; empty: the name says none.
void hub_label(const char *file, char out[HUB_LABEL_BYTES]);
// Whether a file is a draft by its name.
bool hub_is_draft(const char *file);
// Of -00002-of-00003.gguf: 2, *of 3, and the length of what is before; else 0.
int hub_part(const char *file, int *of, size_t *stem);

// Some files of a list, in the order of their parts.
struct hub_choice {
    int64_t at[HUB_PARTS_MAX];
    int n;
};
// The GGUF file, or all its parts, that a name means. ERR_MISMATCH with a sentence: none, several,
// a part is missing.
int hub_choose(const struct hub_files *f, const struct hub_name *n, struct hub_choice *out,
               struct err *e);
// A draft: a GGUF file, or model.safetensors and after it config.json. named: only what is a draft
// by its name. out->n is 0 where there is none.
void hub_choose_draft(const struct hub_files *f, bool named, struct hub_choice *out);

// Repositories that may hold the draft of a target's: known pairs (drafts.tsv), then those called
// like it. false: there is no i-th.
bool hub_draft_name(const char *repo, int i, struct hub_name *out);

#endif
