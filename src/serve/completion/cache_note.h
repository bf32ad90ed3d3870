// SPDX-License-Identifier: Apache-2.0
// Why a prompt, or a part of it, was run again, as words for the log: how many tokens the prefix
// cache had, the first that differs from the nearest text that is known, and which rule made it so.
#ifndef COPPICE_SERVE_COMPLETION_CACHE_NOTE_H
#define COPPICE_SERVE_COMPLETION_CACHE_NOTE_H

#include "engine/cache/cache.h"
#include "text/chat/reasoning.h"
#include "text/tokenizer/tokenizer.h"

struct cache_note {
    const struct cache_report *report;
    const struct tokenizer *tokenizer;
    enum reasoning_family family; // of the template
    int64_t system;               // tokens of system message and tools; 0: not known
    bool words; // may quote the tokens at which texts part: one is of another request
};
// Appends "cache: ..." ; nothing where there is nothing to explain.
void cache_note_write(struct str *out, const struct cache_note *n);

#endif
