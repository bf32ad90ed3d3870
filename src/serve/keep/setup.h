// SPDX-License-Identifier: Apache-2.0
// What has to be equal so that an answer can be given again bit by bit (docs/exactness.md): the
// model's file, how keys and values are stored and prompts are read, the device. It stands in the
// line of each answer that a server keeps.
#ifndef COPPICE_SERVE_KEEP_SETUP_H
#define COPPICE_SERVE_KEEP_SETUP_H

#include "base/json/json.h"
#include "engine/session/session.h"

struct keep_setup {
    char program[32];      // version
    char file[256];        // name of the model's file, without its folder
    int64_t bytes;         // of it
    uint64_t sketch;       // content_sketch
    char device[128];      // exec_label
    bool gpu;              // it is one
    char key[16], val[16]; // codecs of keys and of values
    char positions[256];   // options of how they turn, as they were given; "": none was
    double sparse;         // --sparse-prefill; 0: prompts are read densely
    int64_t window, pool;  // --fa-window, --kv-pool of chosen pages; 0: replies see everything
    int64_t cpu_experts;   // layers whose experts the CPU computes
};

// Of a session that these options have opened.
void keep_setup_of(struct keep_setup *u, const struct session *s, const struct session_options *o);
// Two members of an open object: "program" and "setup".
void keep_setup_write(struct json_writer *w, const struct keep_setup *u);
// Of such an object. ERR_FORMAT: something is missing.
int keep_setup_read(struct keep_setup *u, const struct json *line, struct err *e);
// ERR_MISMATCH with a sentence where an answer of `made` cannot be given again by `now`. Levels of
// a CPU give the same bits.
int keep_setup_check(const struct keep_setup *made, const struct keep_setup *now, struct err *e);

#endif
