// SPDX-License-Identifier: Apache-2.0
// What the subcommands that take prompts share of their compression: when it acts, and the
// compressor on a device of its own, from the options.
#ifndef COPPICE_CLI_MODELS_COMPRESSION_H
#define COPPICE_CLI_MODELS_COMPRESSION_H

#include "cli/cli.h"
#include "compress/compress.h"
#include "compress/prefill.h"
#include "compress/score/score.h"
#include "engine/session/runtime.h"
#include "engine/session/scorer_reservation.h"
#include "engine/session/session.h"

// The options of prompt compression (--prefill-*), as the compressor and the scorer take them.
// ERR_USAGE: a value out of range, a curve out of order, more than one of ratio, curve and mass.
int compression_keep_options(const struct options *o, struct compress_options *out, struct err *e);
int compression_scorer_options(const struct options *o, struct score_options *out, struct err *e);
// The device of the options, for a scorer without a target.
struct device_options compression_device(const struct options *o);

// Zeroed: there is none.
struct compression {
    struct prefill_options options;
    struct score_options scorer;
    const char *path; // of the scorer; borrowed
    struct runtime *runtime;
    struct runtime_device *device;
    struct score_plan plan; // for a prompt of 131,072 tokens
    struct reservation *reservation;
    struct compressor *c; // NULL: off, or not opened yet
    int64_t park, lend; // bytes of the target's weights, and of the slots of its experts, that make
                        // room while a text is scored
};

// Reads the options. ERR_USAGE: a value out of range, what compresses without a mode, a mode
// without --prefill-drafter.
int compression_options(struct compression *k, const struct cli_args *a, struct err *e);
// Plans and reserves the scorer's memory and opens the compressor; nothing where it is off.
int compression_open(struct compression *k, const struct cli_args *a, struct err *e);
// Where both share a GPU, takes what the scorer has reserved off the memory that the session may
// take. Where the pair does not fit into what is left, as many of its slots of experts (o->lend)
// and of its weights (o->park) make room while a text is scored as have to. o is complete but for
// that. ERR_MEMORY: that does not fit either.
int compression_share(struct compression *k, const struct cli_args *a, struct session_options *o,
                      struct err *e);
// Lets the session make room for the scorer, if it has to; it must outlive the compressor's use.
void compression_lend(struct compression *k, struct session *s);
void compression_close(struct compression *k);

// "compressed from .. to .. tokens in .. ms", or why not, to standard error.
void compression_show(const struct prefill_report *r);

#endif
