// SPDX-License-Identifier: Apache-2.0
// A runtime with a GPU: a pair and a model next to it on one device, on a device each where there
// are two, and on a GPU and the CPU; step by step in turn, with copies to the host at the same
// time. Tokens and hashes must be those of each alone, what is reserved must cover what is taken,
// and what does not fit is refused with the holder of the memory. Usage: test_models [TARGET
// DRAFT], from the folder of the repository.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/batch/batch.h"
#include "ops/copier.h"

enum { NEW = 60, N_PROMPT = 150, NOTHING_TO_RUN_ON = 77 };
static const int64_t LIMIT = (int64_t)2 << 30;

static int passed, failed;

static bool is(bool ok, const char *what, const char *text) {
    passed += ok;
    failed += !ok;
    printf("%-6s models: %s%s%s\n", ok ? "ok" : "FAIL", what, text[0] ? ": " : "", text);
    return ok;
}

// One model on a device, with a request under way.
struct run {
    struct session *s;
    struct batch *b;
    struct job *j;
    struct reply y;
    int stepped;
};

static int32_t prompt[N_PROMPT];

static int start(struct run *w, struct runtime *r, const char *device, char **files, bool draft,
                 struct err *e) {
    struct session_options o = session_options_default();
    struct request q;
    *w = (struct run){.stepped = 1};
    o.runtime = r;
    o.device = device;
    o.model = files[0];
    o.draft = draft ? files[1] : NULL;
    o.vram_limit = strcmp(device, "cpu") ? LIMIT : 0;
    o.target.max_ctx = 1024;
    request_init(&q);
    q.prompt = prompt;
    q.n_prompt = N_PROMPT;
    q.max_tokens = NEW;
    q.ignore_eos = q.logit_hash = true;
    q.how = draft ? SPECULATE_TREE : SPECULATE_OFF;
    int rc = session_open(&w->s, &o, e);
    if (!rc)
        rc = batch_create(&w->b, w->s, 1, e);
    return rc ? rc : batch_join(w->b, &q, &w->y, &w->j, e);
}

static void end(struct run *w) {
    batch_destroy(w->b);
    session_close(w->s);
    reply_fini(&w->y);
}

// Steps of both in turn; a copy of some device memory to the host goes concurrently with each.
static int run_both(struct run *w, int n, struct err *e) {
    enum { BYTES = 1 << 20 };
    struct exec *x = runtime_exec(session_device(w[0].s));
    struct copier *c = NULL;
    void *host = NULL, *device = exec_ops(x)->alloc(x, BYTES);
    uint64_t ticket = 0;
    int rc = device ? copier_create(&c, x, e) : ERR_MEMORY;
    if (!rc && !(host = exec_host_alloc(x, BYTES)))
        rc = ERR_MEMORY;
    for (bool more = true; !rc && more;) {
        more = false;
        for (int i = 0; !rc && i < n; i++) {
            rc = batch_step(w[i].b, &w[i].stepped, e);
            more = more || w[i].stepped;
        }
        copier_after_compute(c);
        ticket = copier_to_host(c, host, device, BYTES);
    }
    if (c && !rc)
        rc = copier_wait(c, ticket, e);
    for (int i = 0; !rc && i < n; i++)
        rc = job_failed(w[i].j, e);
    copier_destroy(c);
    exec_host_free(x, host);
    exec_ops(x)->free(x, device);
    return rc;
}

static bool same(const struct run *a, const struct run *b) {
    return a->y.n == NEW && b->y.n == NEW && a->y.hash == b->y.hash &&
           !memcmp(a->y.ids, b->y.ids, NEW * sizeof *a->y.ids);
}

static void pair_and_scorer(const char *what, const char *device, const char *other, char **files) {
    struct run alone[2] = {{0}}, both[2] = {{0}};
    struct runtime *r = NULL;
    struct err e = {0};
    int rc = start(&alone[0], NULL, device, files, true, &e);
    if (!rc)
        rc = run_both(&alone[0], 1, &e);
    if (!rc)
        rc = start(&alone[1], NULL, other, files, false, &e);
    if (!rc)
        rc = run_both(&alone[1], 1, &e);
    if (!rc)
        rc = runtime_create(&r, &e);
    if (!rc)
        rc = start(&both[0], r, device, files, true, &e);
    if (!rc)
        rc = start(&both[1], r, other, files, false, &e);
    if (!rc)
        rc = run_both(both, 2, &e);
    is(!rc && same(&alone[0], &both[0]) && same(&alone[1], &both[1]), what, e.text);
    if (!rc) {
        struct runtime_device *d = session_device(both[0].s);
        struct exec_memory m;
        exec_memory_of(runtime_exec(d), &m);
        printf("  reserved %.1f MiB, taken %.1f\n",
               (double)reservations_total(runtime_reservations(d)) / 1048576,
               (double)m.used / 1048576);
    }
    for (int i = 0; i < 2; i++) {
        end(&alone[i]);
        end(&both[i]);
    }
    runtime_destroy(r);
}

static void refused(char **files) {
    struct runtime *r = NULL;
    struct run w[2] = {{0}};
    struct err e = {0};
    struct device_options o = {.name = "cuda:0", .cuda_path = CUDA_PATH_AUTO, .vram_limit = LIMIT};
    struct runtime_device *d = NULL;
    struct reservation *c = NULL, hog = {.who = "a large model"};
    int rc = runtime_create(&r, &e);
    if (!rc)
        rc = runtime_device(r, &o, &d, &e);
    if (is(!rc, "a runtime", e.text)) {
        hog.bytes[ARENA_WEIGHTS] = runtime_available(d) - (1 << 20);
        is(!runtime_reserve(d, &hog, 0, runtime_available(d), &c, &e),
           "a reservation of nearly all", e.text);
        rc = start(&w[0], r, "cuda:0", files, true, &e);
        is(rc == ERR_MEMORY && strstr(e.text, "a large model holds"), "who holds it", e.text);
        end(&w[0]);
        runtime_release(d, c);
        rc = start(&w[1], r, "cuda:0", files, true, &e);
        is(!rc, "room again", rc ? e.text : "");
        end(&w[1]);
    }
    runtime_destroy(r);
}

int main(int argc, char **argv) {
    char *bundled[] = {"models/coppice-tiny-q8_0.gguf", "models/coppice-tiny-dflash-q8_0.gguf"};
    char **files = argc > 2 ? argv + 1 : bundled;
    struct device_survey found;
    exec_survey_cuda(&found);
    if (found.n == 0) {
        printf("models: no GPU (%s)\n", found.reason ? found.reason : "none");
        return NOTHING_TO_RUN_ON;
    }
    for (int i = 0; i < N_PROMPT; i++)
        prompt[i] = 11 + i * 37 % 700;
    pair_and_scorer("two models on one GPU", "cuda:0", "cuda:0", files);
    pair_and_scorer("a GPU and the CPU", "cuda:0", "cpu", files);
    if (found.n > 1)
        pair_and_scorer("two GPUs", "cuda:0", "cuda:1", files);
    else
        printf("skip   models: two GPUs (there is one)\n");
    refused(files);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
