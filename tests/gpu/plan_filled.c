// SPDX-License-Identifier: Apache-2.0
// What a plan says fits does, to the last token of its context, on a stand-in for a GPU: sessions
// under many limits, on each path, alone and with a draft,
// read prompts as long as what was planned. Less is refused by one sentence. Usage: plan_filled,
// from the folder of the repository.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "engine/batch/batch.h"
#include "engine/session/session.h"

enum { MIB = 1 << 20, LIMIT_TOKENS = 60000, NEW = 3 };

static int passed, failed;

static int read_prompt(struct session *s, bool draft, int64_t context, struct err *e) {
    static int32_t prompt[LIMIT_TOKENS];
    struct request q;
    struct reply y = {0};
    request_init(&q);
    for (int i = 0; i < LIMIT_TOKENS; i++)
        prompt[i] = 5 + i % 200;
    q.prompt = prompt;
    q.n_prompt = min_i64(context - 2 * NEW, LIMIT_TOKENS);
    q.max_tokens = NEW;
    q.ignore_eos = true;
    q.how = draft ? SPECULATE_TREE : SPECULATE_OFF;
    q.tree.budget = TREE_MAX_BUDGET;
    int rc = session_generate(s, &q, &y, e);
    reply_fini(&y);
    return rc;
}

// A session under a limit; 1: refused by its plan.
static int under(int64_t limit, enum cuda_path path, bool draft, struct err *e) {
    struct session_options o = session_options_default();
    struct session *s = NULL;
    o.device = "cuda";
    o.cuda_path = path;
    o.model = "models/coppice-tiny-q8_0.gguf";
    o.draft = draft ? "models/coppice-tiny-dflash-q8_0.gguf" : NULL;
    o.vram_limit = limit;
    int rc = session_open(&s, &o, e);
    if (rc)
        return rc == ERR_MEMORY && strstr(e->text, "too little; use") ? 1 : rc;
    rc = read_prompt(s, draft, session_plan(s)->context, e);
    session_close(s);
    return rc;
}

static void verdict(bool ok, enum cuda_path path, bool draft, const char *what) {
    passed += ok;
    failed += !ok;
    printf("%-6s plan: %s%s, %s\n", ok ? "ok" : "FAIL", device_path_name(path),
           draft ? " with a draft" : "", what);
}

static void walk(enum cuda_path path, bool draft) {
    int fitted = 0, refused = 0;
    char text[700];
    for (int64_t limit = 100; limit < 640 && fitted < 24; limit += 7) {
        struct err e = {0};
        const int rc = under(limit * MIB, path, draft, &e);
        if (rc == ERR_UNSUPPORTED && !fitted && !refused) {
            printf("skip   plan: %s\n", e.text);
            return;
        }
        fitted += rc == 0;
        refused += rc == 1;
        snprintf(text, sizeof text, "%lld MiB: %s", (long long)limit, e.text);
        if (rc < 0 || (rc == 1 && fitted))
            verdict(false, path, draft, text);
    }
    snprintf(text, sizeof text, "%d limits fitted, %d were too little", fitted, refused);
    verdict(fitted > 0 && refused > 0, path, draft, text);
}

int main(void) {
    static const enum cuda_path paths[] = {CUDA_PATH_WGMMA, CUDA_PATH_MMA, CUDA_PATH_SMALL};
    for (int i = 0; i < 6; i++)
        walk(paths[i / 2], i % 2);
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
