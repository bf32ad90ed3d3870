// SPDX-License-Identifier: Apache-2.0
// A text that grows over several requests: its tokens, and the state of as many of them as have
// been run. Tokens are appended, cut off and generated freely; the state follows, and what did not
// change is not run again. Several transcripts of one session take turns. It does not depend on
// text and conversations.
#ifndef COPPICE_ENGINE_BATCH_TRANSCRIPT_H
#define COPPICE_ENGINE_BATCH_TRANSCRIPT_H

#include "engine/batch/request.h"

struct transcript;

// Empty. The session must outlive it.
int transcript_create(struct transcript **out, struct session *s, struct err *e);
void transcript_destroy(struct transcript *t); // NULL is allowed

int64_t transcript_len(const struct transcript *t);
const int32_t *transcript_tokens(const struct transcript *t); // [len], until the next change
// Tokens, the first ones, that were run; none of them after a failure that has made their state
// invalid.
int64_t transcript_ready(const struct transcript *t);

// ERR_MISMATCH for an id outside the vocabulary. After an error nothing has changed.
int transcript_append(struct transcript *t, const int32_t *ids, int64_t n, struct err *e);

// Keeps the first n tokens, 0 <= n <= len. The state of a model with recurrent layers goes back to
// the last multiple of 32 tokens if that suffices, else to none: the next request then runs the
// text again.
int transcript_cut(struct transcript *t, int64_t n, struct err *e);

// Continues the text; prompt, prefix and in_place of r are not looked at. The new tokens, also
// those chosen before an error, become part of it, the last one without being run. A state that a
// failure has made invalid is dropped, and the next request runs the text again. *out as of
// session_generate. With max_tokens 0 all but the last token are run and nothing is chosen.
int transcript_generate(struct transcript *t, const struct request *r, struct reply *out,
                        struct err *e);

// An independent copy; pages of keys and values are shared until one of them writes.
int transcript_fork(const struct transcript *t, struct transcript **out, struct err *e);

// A copy of the tokens with a resume point at the last multiple of 32 that was run: smaller than a
// fork. Outlives the transcript, not the session.
struct snapshot;
int transcript_save(const struct transcript *t, struct snapshot **out, struct err *e);
// The transcript becomes what was saved, of the same session. After an error nothing has changed.
int transcript_restore(struct transcript *t, const struct snapshot *b, struct err *e);
int64_t snapshot_ready(const struct snapshot *b); // tokens, the first ones, whose state it holds
// Tokens, first ones, whose state is that of one prompt's beginning: all, but where prompts are
// read sparsely those of the first prompt, what stands after it being read in full, and where
// replies see a window those before the newest reply.
int64_t snapshot_prompt(const struct snapshot *b);
int64_t snapshot_bytes(const struct snapshot *b); // without shared pages
void snapshot_destroy(struct snapshot *b);        // NULL is allowed

// The same as a file, which another process with the same model can go on from
// (models/checkpoint.h). After an error of the first, what was at `path` is there as before.
int snapshot_write(const struct snapshot *b, const char *path, struct err *e);
int snapshot_read(struct snapshot **out, struct session *s, const char *path, struct err *e);

#endif
