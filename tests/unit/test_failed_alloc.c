// SPDX-License-Identifier: Apache-2.0
// Every allocation on the way of a request's text fails once: the body as JSON, its fields, its
// conversation, a kept one that it goes on from, the template, the tokens. The outcome is the one
// without a failure, or it is that memory is short (503), and never that the client is wrong.
#include "test.h"

#include <stdlib.h>

#include "base/json/json.h"
#include "serve/api/handlers.h"
#include "serve/conversation/interfaces.h"
#include "serve/conversation/plain.h"
#include "serve/http/http.h"
#include "serve/request/body.h"
#include "text/chat/chat.h"
#include "vocab_file.h"

#if defined __GLIBC__ && !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
// A program's own functions come before those of the C library.
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

static _Thread_local long left = -1; // allocations that succeed before one fails; -1: all do

extern char __executable_start, etext;

// Only what this program requests itself: libraries (json-c above all) do not survive each failure.
static bool fails(const void *from) {
    bool ours = (const char *)from >= &__executable_start && (const char *)from < &etext;
    return ours && left >= 0 && left-- == 0;
}

void *malloc(size_t n) {
    return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size) {
    return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n) {
    return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(p, n);
}

static const char chat_body[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"Be brief, now.\"},"
    "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"one\"}]},"
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\","
    "\"function\":{\"name\":\"look\",\"arguments\":\"{\\\"at\\\":[1,2.5,null]}\"}}]},"
    "{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"none\"},"
    "{\"role\":\"user\",\"content\":\"and then?\"}],"
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"look\",\"parameters\":"
    "{\"type\":\"object\",\"properties\":{\"at\":{\"type\":\"array\"}}}}}],"
    "\"stop\":[\"x\",\"y\"],\"logit_bias\":{\"3\":1},\"max_tokens\":5}";

// Goes on from a kept response, and names an item of it.
static const char kept_input[] =
    "[{\"type\":\"message\",\"role\":\"user\",\"content\":\"one\"},{\"type\":\"function_call\","
    "\"call_id\":\"c1\",\"name\":\"look\",\"arguments\":\"{}\"},{\"type\":"
    "\"function_call_output\",\"call_id\":\"c1\",\"output\":\"none\"}]";
static const char kept_response[] =
    "{\"id\":\"resp_0123456789abcdef\",\"output\":[{\"type\":\"message\",\"role\":\"assistant\","
    "\"id\":\"msg_0123456789abcdef_0\",\"content\":[{\"type\":\"output_text\",\"text\":\"two\"}]}]"
    "}";
static const char response_body[] =
    "{\"previous_response_id\":\"resp_0123456789abcdef\",\"instructions\":\"Be brief.\",\"input\":["
    "{\"type\":\"item_reference\",\"id\":\"msg_0123456789abcdef_0\"},"
    "{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"and then?\"}]}],"
    "\"tools\":[{\"type\":\"function\",\"name\":\"look\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"at\":{\"type\":\"array\"}}}}],\"max_output_tokens\":5}";

struct world {
    const char *body;
    enum endpoint endpoint;
    struct service service; // its kept responses
    struct tokenizer *tokenizer;
    struct chat_template *chat;
    struct params_limits limits;
};

static bool render(struct world *w, struct params *p, const struct json *body, struct str *text,
                   struct token_list *ids, struct api_error *x) {
    struct conversation v = {0};
    struct chat_text out = {0};
    struct err e = {0};
    bool ok =
        (w->endpoint == ENDPOINT_CHAT ? conversation_read_chat_body(&v, p, x)
                                      : api_responses_dialect.read(&w->service, p, body, &v, x)) &&
        conversation_plain(&v, x);
    const struct chat_input in = {.said = &v, .add_generation_prompt = true};
    int rc = !ok ? 0 : chat_render(w->chat, &in, &out, &e);
    if (ok && !rc)
        rc = chat_encode(w->tokenizer, &out, ids, &e);
    if (rc)
        api_error_of(x, &e);
    *text = out.text;
    out.text = (struct str){0};
    chat_text_fini(&out);
    conversation_fini(&v);
    return ok && !rc;
}

static bool ask(struct world *w, struct str *text, struct token_list *ids, struct api_error *x) {
    struct params p = {0};
    struct json *v = NULL;
    bool ok = body_parse(w->body, strlen(w->body), &v, x) &&
              body_read(&p, v, w->endpoint, &w->limits, x) && render(w, &p, v, text, ids, x);
    params_fini(&p);
    json_free(v);
    return ok;
}

static void keep_response(struct response_store *store) {
    struct str response = {0}, input = {0};
    str_puts(&response, kept_response);
    str_puts(&input, kept_input);
    response_store_init(store);
    response_store_put(store, "resp_0123456789abcdef", &response, &input);
    str_fini(&response);
    str_fini(&input);
}

static void fail_each_allocation(struct world *w) {
    struct str want = {0};
    struct token_list ids = {0};
    struct api_error x = {0};
    if (!ask(w, &want, &ids, &x))
        fail_msg("%s", x.text);
    size_t count = ids.count;
    int wrong = 0;
    long n = 0;
    for (bool failed = true; failed; n++) {
        struct str text = {0};
        struct token_list got = {0};
        x = (struct api_error){0};
        left = n;
        bool ok = ask(w, &text, &got, &x);
        failed = left < 0;
        left = -1;
        bool same = ok && text.len == want.len && !memcmp(text.data, want.data, want.len) &&
                    got.count == count;
        if (!same && x.status != 503) {
            print_error("allocation %ld: %d %s %.300s\n", n, x.status, x.text,
                        ok && text.data ? text.data : "");
            wrong++;
        }
        str_fini(&text);
        token_list_fini(&got);
    }
    print_message("%ld allocations\n", n);
    assert_true(n > 20);
    assert_int_equal(wrong, 0);
    str_fini(&want);
    token_list_fini(&ids);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    static const char template[] = "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
                                   "{% for c in m.tool_calls %}{{ c.function.arguments | tojson }}"
                                   "{% endfor %}{% endfor %}{{ tools | tojson }}";
    static const char *const none[1];
    const struct vocab_spec spec = {none, none, NULL, 0, 0};
    struct world w = {.limits = {.vocab = 1000, .slots = 8}};
    struct vocab_file f = {0};
    struct err e = {0};
    vocab_file_fill(&f, &spec);
    assert_int_equal(vocab_file_load(&f, &w.tokenizer, &e), 0);
    if (chat_template_create(&w.chat, template, sizeof template - 1, w.tokenizer, &e))
        fail_msg("%s", e.text);
    sample_params_init(&w.limits.sample);
    keep_response(&w.service.responses);
    w.body = chat_body;
    w.endpoint = ENDPOINT_CHAT;
    fail_each_allocation(&w);
    w.body = response_body;
    w.endpoint = ENDPOINT_RESPONSES;
    fail_each_allocation(&w);
    response_store_fini(&w.service.responses);
    chat_template_free(w.chat);
    tokenizer_destroy(w.tokenizer);
    vocab_file_fini(&f);
}

static void count_one(void *arg) {
    ++*(int *)arg;
}

static void no_handler(void *arg, struct exchange *x) {
    (void)arg;
    exchange_abort(x);
}

// A worker that is done says so without an allocation, or its request would never be answered.
static void the_end_of_work_is_always_reported(void **state) {
    (void)state;
    struct http *h;
    struct err e = {0};
    int ran = 0;
    struct http_task t = {.fn = count_one, .arg = &ran}, late = t;
    assert_int_equal(http_create(&h, &(struct http_options){.handler = no_handler}, &e), 0);
    left = 0;
    assert_int_equal(http_post(h, count_one, &ran), ERR_MEMORY);
    left = 0;
    assert_int_equal(http_post_task(h, &t), 0);
    left = -1;
    http_stop(h);
    http_stop(h);
    assert_int_equal(http_run(h, &e), 0);
    assert_int_equal(ran, 1);
    assert_int_equal(http_post_task(h, &late), ERR_STATE);
    http_destroy(h);
    assert_int_equal(ran, 1);
}
#else
static void the_end_of_work_is_always_reported(void **state) {
    (void)state;
}

static void every_allocation_may_fail(void **state) {
    (void)state; // where another allocator watches, the fuzz programs do this
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(the_end_of_work_is_always_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
