// SPDX-License-Identifier: Apache-2.0
// Requests compressed by models in place of a stand-in, over real HTTP: the bundled scorer, which
// shares the target's vocabulary, and scorers with vocabularies of other kinds, whose pieces reach
// the target as characters. Texts have characters of several bytes that the vocabularies cut.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "compress/compress.h"
#include "server_rig.h"
#include "support/match_scorer.h"
#include "test.h"

#define CHAT   "/v1/chat/completions"
#define SCORER SOURCE_ROOT "/models/coppice-tiny-scorer-q8_0.gguf"
#define TREE   "\xE6\xA3\xAE\xF0\x9F\x8C\xB2"
#define FACT   "Der Schl\xC3\xBCssel zum Kaf\xC3\xA9 hei\xC3\x9Ft " TREE " 4711."
#define ASKED  "Wie hei\xC3\x9Ft der Schl\xC3\xBCssel zum Kaf\xC3\xA9?"

enum { LINES = 150 };

// Sends a request through the scorer in the file `path`. What the model read is in the log.
static void ask(const char *path, struct server_rig *r, struct compressor **c, struct json **v) {
    struct prefill_options p = prefill_options_default();
    const struct score_options so = score_options_default();
    struct err e = {0};
    struct str body = {0};
    p.mode = PREFILL_ALWAYS;
    p.compress.select.budget = SELECT_RATIO;
    p.compress.select.keep = 0.1;
    p.compress.select.head = p.compress.select.tail = 0;
    p.compress.select.anchors = false;
    if (compressor_open(c, NULL, path, &so, &e))
        fail_msg("%s", e.text);
    server_rig_start(r,
                     (struct server_options){.prefill = p, .compressor = *c, .log_prompts = true});
    str_puts(&body, "{\"max_tokens\":2,\"messages\":[{\"role\":\"user\",\"content\":\"");
    for (int i = 0; i < LINES; i++)
        str_puts(&body,
                 i == LINES / 2 ? FACT "\\n" : "Le ciel est bleu, na\xC3\xAFvet\xC3\xA9.\\n");
    str_puts(&body, "\\n" ASKED "\"}]}");
    *v = server_rig_json(r, CHAT, body.data, 200);
    str_fini(&body);
}

static void finish(struct server_rig *r, struct compressor *c, struct json *v) {
    json_free(v);
    server_rig_stop(r);
    compressor_close(c);
}

static void check(const struct server_rig *r, const struct json *v) {
    int64_t from = server_rig_int(v, "timings.compression.from");
    int64_t to = server_rig_int(v, "timings.compression.to");
    assert_null(server_rig_at(v, "timings.compression.reason"));
    assert_true(from > 2000 && to < from / 5);
    assert_int_equal(server_rig_int(v, "usage.prompt_tokens"), to); // of the target
    const char *read = strstr(r->log.data, " prompt \"");
    assert_non_null(read);
    const char *fact = strstr(read, FACT);
    assert_non_null(fact);
    assert_non_null(strstr(fact, ASKED "<|im_end|>"));
    assert_null(strstr(read, "\xEF\xBF\xBD")); // nothing was cut inside a character
}

static void the_bundled_scorer(void **state) {
    (void)state;
    struct server_rig r;
    struct compressor *c;
    struct json *v;
    ask(SCORER, &r, &c, &v);
    check(&r, v);
    finish(&r, c, v);
}

static void scorers_of_other_vocabularies(void **state) {
    (void)state;
    static const char *const vocabularies[] = {"qwen2", "families/spm", "families/bytes",
                                               "families/gemma4"};
    for (size_t i = 0; i < sizeof vocabularies / sizeof *vocabularies; i++) {
        char path[64], tokenizer[256];
        struct server_rig r;
        struct compressor *c;
        struct json *v;
        struct err e = {0};
        snprintf(path, sizeof path, "/tmp/test_api_scorers.%d.gguf", (int)getpid());
        snprintf(tokenizer, sizeof tokenizer, TEST_DATA "/fixtures/tokenizer/%s.gguf",
                 vocabularies[i]);
        if (match_scorer_write(path, tokenizer, &e))
            fail_msg("%s: %s", vocabularies[i], e.text);
        ask(path, &r, &c, &v);
        check(&r, v);
        finish(&r, c, v);
        assert_int_equal(remove(path), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bundled_scorer),
        cmocka_unit_test(scorers_of_other_vocabularies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
