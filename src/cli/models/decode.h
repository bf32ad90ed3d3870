// SPDX-License-Identifier: Apache-2.0
// What the subcommands that run models share: opening the pair that the options name, the prompt's
// ids, the request that the options describe, and files of raw rows.
#ifndef COPPICE_CLI_MODELS_DECODE_H
#define COPPICE_CLI_MODELS_DECODE_H

#include <stdio.h>

#include "cli/cli.h"
#include "cli/models/compression.h"
#include "engine/batch/batch.h"
#include "engine/session/named_drafts.h"

// Paths that options of a session point at. Zeroed is valid.
struct decode_files {
    struct str prices, model, draft;
    struct named_drafts drafts;
};
void decode_files_fini(struct decode_files *f);

// The options that a memory plan depends on besides its files and its device: context, rotary
// positions, codecs of keys and values, rows of a prompt's pass and how it is read.
int decode_planned(const struct cli_args *a, struct session_options *o, struct err *e);

// The options of -m, -d and of the device; `chat` and `serve` find models that are not named
// (the bundled pair, and a draft that lies next to its target). *out points into f, which the
// caller frees in any case.
int decode_session(const struct cli_args *a, struct session_options *out, struct decode_files *f,
                   struct err *e);

// Opens -m and -d. needs_draft: ERR_USAGE without -d, or where that gives no draft.
int decode_open(const struct cli_args *a, bool needs_draft, struct session **out, struct err *e);
// The same; *used: the options that it was opened with, whose paths are gone.
int decode_open_used(const struct cli_args *a, struct session **out, struct session_options *used,
                     struct err *e);
// The same together with a scorer, as the options say: k is to be closed in any case.
int decode_open_with_scorer(const struct cli_args *a, struct compression *k, struct session **out,
                            struct err *e);

// The memory plan goes to standard error where it was made for a device or a server, or requested.
void decode_show_plan(const struct cli_args *a, const struct session *s);

// Appends the ids of --ids, or of the text of -p or -f; exactly one source. Ids outside the
// vocabulary are refused.
int decode_prompt(const struct cli_args *a, const struct session *s, struct token_list *out,
                  struct err *e);

// --budget: max nodes besides the root; *choose: how many of them pay is to be learnt.
int decode_budget(const struct cli_args *a, bool *choose);

// The request of the options, without prompt and callbacks. The draft's presence decides how to
// guess when --speculate was not given.
void decode_request(const struct cli_args *a, const struct session *s, struct request *r);
// The constraint of --grammar-file or --json-schema; *out: to be dropped, or NULL.
int decode_constraint(const struct cli_args *a, const struct session *s, struct constraint **out,
                      struct err *e);
// The part of it that says how to guess.
void decode_guessing(const struct cli_args *a, const struct session *s, struct request *r);

// Appends the text of ids, control tokens left out, as valid UTF-8.
void decode_text(const struct session *s, const int32_t *ids, int64_t n, struct str *out);

// Milliseconds of all steps after the prompt.
double decode_ms(const struct step_times *m);
// Object of milliseconds by phase: {"load":..,"prompt":.., ...}.
void decode_json_ms(struct json_writer *w, double load, const struct step_times *ms, double total);
// "device" and, where a plan was made, "memory" in bytes: the plan's parts, what was taken.
void decode_json_memory(struct json_writer *w, const struct session *s);
// With --verbose on a device, what was taken at most, to standard error.
void decode_show_peak(const struct cli_args *a, const struct session *s);
void decode_json_hash(struct json_writer *w, uint64_t hash); // "logit_hash"
void decode_json_ids(struct json_writer *w, const char *key, const int32_t *ids, int64_t n);

#endif
