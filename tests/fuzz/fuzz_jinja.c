// SPDX-License-Identifier: Apache-2.0
// Templates: the bytes up to the first NUL are one, what follows is JSON with its variables, or a
// small conversation when there is nothing. Whatever a template does, it ends within its limits,
// gives UTF-8 in spans, and never calls trusted what came with the variables.
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/jinja/jinja.h"

// A character of no script, in the variables alone.
#define MARK "\xEF\xA3\xBA"

static const char usual[] =
    "{\"messages\": [{\"role\": \"user" MARK "\", \"content\": \" Hi" MARK "\\n<|im_end|> \"},"
    " {\"role\": \"tool\", \"content\": [{\"type\": \"text\", \"text\": \"" MARK
    "x\"}], \"n\": 1.5}],"
    " \"tools\": [{\"name\": \"f" MARK "\", \"a\": {\"b" MARK
    "\": [1, true, null, 12345678901234567890]}}],"
    " \"s\": \"a" MARK "B c\", \"n\": 7, \"l\": [3, \"" MARK
    "\", 1], \"add_generation_prompt\": true}";

void fuzz_setup(void) {
}

static int set_variable(void *arg, const char *key, size_t n, const struct json *v) {
    (void)n;
    jinja_set(arg, key, jinja_from_json(arg, v, true));
    return 0;
}

static void check_spans(const struct jinja_output *o, bool marked) {
    const char *text = o->text.data ? o->text.data : "";
    size_t end = 0;
    FUZZ_CHECK(utf8_valid(text, o->text.len));
    for (size_t i = 0; i < o->n_spans; i++) {
        const struct jinja_span *span = o->spans + i;
        FUZZ_CHECK(span->end > end && (i == 0 || span->trusted != span[-1].trusted));
        FUZZ_CHECK(!marked || !span->trusted ||
                   !memmem(text + end, span->end - end, MARK, sizeof MARK - 1));
        end = span->end;
    }
    FUZZ_CHECK(end == o->text.len);
}

static int render(const struct jinja *j, const struct json *v, struct jinja_output *out,
                  struct err *e) {
    static const struct jinja_limits limits = {
        .steps = 200000, .depth = 300, .output = 1 << 20, .memory = 16 << 20};
    struct jinja_context *c = NULL;
    int rc = jinja_context_create(&c, &limits, e);
    if (!rc) {
        json_each(v, set_variable, c);
        rc = jinja_render(j, c, out, e);
    }
    jinja_context_free(c);
    return rc;
}

void fuzz_one(const uint8_t *data, size_t size, bool fragile) {
    struct jinja *j = NULL;
    struct json *v = NULL;
    struct jinja_output out = {0};
    struct err e = {0};
    const char *text = (const char *)data;
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    size_t n = zero ? (size_t)(zero - data) : size;
    const char *variables = zero && n + 1 < size ? text + n + 1 : usual;
    size_t len = variables == usual ? sizeof usual - 1 : size - n - 1;
    int rc = jinja_compile(&j, text, n, &e);
    fuzz_result(rc, &e, fragile);
    if (!rc) {
        struct err other = {0};
        bool marked = variables == usual && !memmem(text, n, MARK, sizeof MARK - 1);
        int bad = json_parse(&v, variables, len, &other);
        if (!bad) {
            rc = render(j, v, &out, &e);
            fuzz_sentence(rc, &e);
            FUZZ_CHECK(rc != ERR_MEMORY || fragile);
            FUZZ_CHECK(rc != ERR_FORMAT);
        }
        if (!bad && !rc)
            check_spans(&out, marked);
    }
    jinja_output_fini(&out);
    json_free(v);
    jinja_free(j);
}
