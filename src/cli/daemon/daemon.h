// SPDX-License-Identifier: Apache-2.0
// `coppice daemon`: the pair, the text that was generated last, the slots
// that hold earlier ones, and where token ids go. Commands come as lines (cli/commands/daemon.c),
// each is answered by a line on standard output and, for those that stream, by 32-bit little-endian
// ids on another descriptor that end in -1.
#ifndef COPPICE_CLI_DAEMON_DAEMON_H
#define COPPICE_CLI_DAEMON_DAEMON_H

#include "cli/models/compression.h"
#include "cli/models/decode.h"
#include "engine/batch/transcript.h"

enum { DAEMON_SLOTS = 64 };

// Token ids with room to grow. Zeroed is empty.
struct daemon_ids {
    int32_t *at; // [n]
    int64_t n, cap;
};

// A text that was kept. Its state is dropped when the target is parked; it is run again then.
struct daemon_slot {
    bool used, thin; // thin: of SNAPSHOT_THIN
    struct daemon_ids ids;
    struct snapshot *state; // NULL: none
};

struct daemon {
    const struct cli_args *a;
    struct decode_files files;
    struct session_options options;
    struct session *s;       // NULL: the target is parked
    bool draft_parked;       // there is no guessing with it
    struct transcript *text; // generated last; NULL: none
    struct daemon_slot slots[DAEMON_SLOTS];
    struct compression scorer; // NULL in it: not loaded
    struct str scorer_path;    // of it
    int stream;                // descriptor for ids; -1: none
    int rc;                    // of standard output: 0, or why nothing can be said any more
    struct err said;
};

// The request of one line that generates.
struct daemon_task {
    struct daemon_ids prompt;
    int64_t n_gen;
    struct sample_params sample;
    bool sampled;           // the line says how to sample
    int64_t snap_at;        // keep the text of that many tokens; 0: none
    int snap_slot;          // there
    int from[DAEMON_SLOTS]; // slots that the text may begin with
    int n_from;
    bool streams; // new ids go to the stream, and -1 after them
};

// The result.
struct daemon_answer {
    struct daemon_ids ids;
    int64_t reused; // tokens of the prompt that had been run before
    double prompt_s, decode_s;
};

// A line for standard output.
void daemon_say(struct daemon *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// "err WORD: sentence"
void daemon_fail(struct daemon *d, const char *word, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
// Ids to the stream, where there is one. ERR_IO: there is none from then on.
int daemon_emit(struct daemon *d, const int32_t *ids, int64_t n, struct err *e);
void daemon_end_stream(struct daemon *d); // -1
// A file of ids: with a count of 32 bits in front that must agree, or bare. ERR_IO, ERR_FORMAT
// (also without any id), ERR_MEMORY.
int daemon_read_ids(struct daemon_ids *out, const char *path, bool counted, struct err *e);
int daemon_write_ids(const char *path, const struct daemon_ids *ids, struct err *e); // with count

// Keeps the text that was generated last. ERR_STATE without one.
int daemon_slot_save(struct daemon *d, int slot, bool thin, struct err *e);
void daemon_slot_free(struct daemon *d, int slot);

// Loads the scorer at `path` in place of another one; nothing where it is there.
int daemon_load_scorer(struct daemon *d, const char *path, struct err *e);
// Has the target's weights make room while a text is scored, if they have to and are there; called
// when the one or the other has come or is about to go.
void daemon_lend(struct daemon *d);
// What stays of a rendered prompt in tokens of the scorer at `path`, which is loaded where it is
// not; keep: thousandths. *ms: what scoring took. The caller frees kept.
int daemon_compress(struct daemon *d, const char *path, const struct daemon_ids *prompt, int keep,
                    struct token_list *kept, double *ms, struct err *e);
bool daemon_free_scorer(struct daemon *d); // whether there was one

int daemon_load(struct daemon *d, struct err *e); // the pair; nothing where it is there
void daemon_unload(struct daemon *d);             // with the text and the slots' states
// Generates. *out needs free(out->ids.at) in any case.
int daemon_generate(struct daemon *d, const struct daemon_task *task, struct daemon_answer *out,
                    struct err *e);

#endif
