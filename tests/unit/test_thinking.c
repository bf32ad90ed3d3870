// SPDX-License-Identifier: Apache-2.0
// The end of reasoning: where it is forced and with which tokens, for blocks that the prompt opens
// and those that the reply opens; what efforts and budgets come to; and over HTTP that replies
// obey, with guesses and without, to the bit.
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "formats/gguf/gguf.h"
#include "serve/completion/constraint.h"
#include "server_rig.h"
#include "spec/constraint/thinking_limit.h"

#define MODEL SOURCE_ROOT "/models/coppice-tiny-q8_0.gguf"

static struct gguf *file;
static struct tokenizer *tokenizer;

static int start(void **state) {
    (void)state;
    assert_int_equal(gguf_open(&file, MODEL, NULL), 0);
    assert_int_equal(tokenizer_create(&tokenizer, file, NULL), 0);
    return 0;
}

static int stop(void **state) {
    (void)state;
    tokenizer_destroy(tokenizer);
    gguf_close(file);
    return 0;
}

static struct constraint *limit(enum reasoning_family family, bool inside, int64_t tokens,
                                const char *closing) {
    struct thinking_limit o = {tokenizer, family, inside, tokens, closing, strlen(closing)};
    struct constraint *c = NULL;
    struct err e = {0};
    if (thinking_limit_create(&c, &o, NULL, &e))
        fail_msg("%s", e.text);
    return c;
}

// Follows a text, then what is forced, which is appended to *out. -> tokens of the text before the
// first forced one; -1: none was.
static int follow(struct constraint *c, const char *text, struct str *out) {
    const struct constraint_class *k = c->class;
    struct constraint_state *s = NULL, *next = NULL;
    struct constraint_view view;
    struct token_list l = {0};
    int at = -1;
    int32_t token;
    str_clear(out);
    str_puts(out, "");
    assert_int_equal(tokenizer_encode(tokenizer, text, strlen(text), true, &l, NULL), 0);
    assert_int_equal(k->begin(c->self, &s, NULL), 0);
    for (size_t i = 0; i <= l.count && at < 0; i++) {
        assert_int_equal(k->look(c->self, s, &view, NULL), 0);
        if (view.only >= 0) {
            at = (int)i;
            break;
        }
        assert_true(!view.allow && !view.none);
        assert_int_equal(k->hint(c->self, s, &token), CONSTRAINT_NO_HINT);
        if (i == l.count)
            break;
        assert_true(k->allows(c->self, s, l.ids[i]));
        assert_int_equal(k->next(c->self, s, l.ids[i], &next, NULL), 0);
        k->drop(c->self, s);
        s = next;
    }
    while (view.only >= 0) {
        struct constraint_view bits = constraint_view_of(view.allow, c->vocab);
        assert_int_equal(bits.only, view.only);
        assert_true(k->allows(c->self, s, view.only) && !k->allows(c->self, s, view.only ^ 1));
        assert_int_equal(k->hint(c->self, s, &token), CONSTRAINT_ONLY);
        assert_int_equal(token, view.only);
        tokenizer_decode(tokenizer, token, true, out);
        assert_int_equal(k->next(c->self, s, token, &next, NULL), 0);
        k->drop(c->self, s);
        s = next;
        assert_int_equal(k->look(c->self, s, &view, NULL), 0);
    }
    k->drop(c->self, s);
    token_list_fini(&l);
    return at;
}

static int tokens_of(const char *text) {
    struct token_list l = {0};
    assert_int_equal(tokenizer_encode(tokenizer, text, strlen(text), true, &l, NULL), 0);
    int n = (int)l.count;
    token_list_fini(&l);
    return n;
}

static void the_end_is_forced(void **state) {
    (void)state;
    static const char words[] = "one two three four five six seven eight";
    struct str out = {0};
    for (int64_t n = 1; n < 6; n++) {
        struct constraint *c = limit(REASONING_THINK, true, n, "\n</think>\n\n");
        assert_int_equal(follow(c, words, &out), n);
        assert_string_equal(out.data, "\n</think>\n\n");
        constraint_drop(c);
    }
    struct constraint *c = limit(REASONING_THINK, true, 0, "\n</think>\n\n");
    assert_int_equal(follow(c, words, &out), 0); // an empty block, as templates write it
    assert_string_equal(out.data, "\n</think>\n\n");
    constraint_drop(c);
    c = limit(REASONING_THINK, true, tokens_of("one\n"), "\n</think>\n\n");
    assert_int_equal(follow(c, "one\ntwo", &out), tokens_of("one\n"));
    assert_string_equal(out.data, "</think>\n\n");
    constraint_drop(c);
    str_fini(&out);
}

static void only_reasoning_counts(void **state) {
    (void)state;
    struct str out = {0};
    struct constraint *c = limit(REASONING_THINK, false, 3, "</think>");
    assert_int_equal(follow(c, "No thought at all, and <think> later is a word.", &out), -1);
    int before = tokens_of("  <think>");
    assert_int_equal(follow(c, "  <think>one two three four five", &out), before + 3);
    assert_string_equal(out.data, "</think>");
    assert_int_equal(follow(c, "<think>hm</think>Then many words, as many as it likes.", &out),
                     tokens_of("hm</think>") > 3 ? tokens_of("<think>") + 3 : -1);
    constraint_drop(c);
    c = limit(REASONING_THINK, true, 30, "</think>");
    assert_int_equal(follow(c,
                            "<</thin </think>Then many words, as many as it likes, and more "
                            "of them than any limit of tokens says, one by one, on and on.",
                            &out),
                     -1);
    constraint_drop(c);
    // A family whose blocks may come again has one limit for all of them.
    c = limit(REASONING_CHANNEL, false, 40, "<channel|>");
    assert_int_equal(
        follow(c, "<|channel>thought hm <channel|>words<|channel>thought hm <channel|>", &out), -1);
    constraint_drop(c);
    c = limit(REASONING_CHANNEL, false, 2, "<channel|>");
    assert_true(follow(c, "words<|channel>thought one two three", &out) > 0);
    assert_string_equal(out.data, "<channel|>");
    constraint_drop(c);
    str_fini(&out);
}

static void templates_without_marks_are_refused(void **state) {
    (void)state;
    struct thinking_limit o = {.t = tokenizer, .family = REASONING_NONE, .closing = ""};
    struct constraint *c = NULL;
    struct err e = {0};
    assert_int_equal(thinking_limit_create(&c, &o, NULL, &e), ERR_UNSUPPORTED);
    o.family = REASONING_THINK;
    assert_int_equal(thinking_limit_create(&c, &o, NULL, &e), ERR_UNSUPPORTED);
    assert_null(c);
}

// As the templates themselves write it between reasoning and content.
static void templates_give_the_end_of_reasoning(void **state) {
    (void)state;
    static const struct {
        const char *text, *closing;
    } cases[] = {
        {"{% for m in messages %}{% if m.reasoning_content %}<think>{{ m.reasoning_content }}"
         "</think>{% endif %}{{ m.content }}{% endfor %}",
         "</think>"},
        {"{% for m in messages %}{% if m.thinking and enable_thinking %}<think>\n{{ m.thinking }}"
         "\n</think>\n\n{% endif %}{{ m.content }}{% endfor %}",
         "\n</think>\n\n"},
        {"{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}", "</think>"},
        {"{% for m in messages %}{{ m.content }}{% endfor %}", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct chat_template *t = NULL;
        struct err e = {0};
        size_t n;
        assert_int_equal(chat_template_create(&t, cases[i].text, strlen(cases[i].text), NULL, &e),
                         0);
        const char *closing = chat_template_closing(t, &n);
        assert_int_equal(closing != NULL, cases[i].closing != NULL);
        if (closing)
            assert_string_equal(closing, cases[i].closing);
        chat_template_free(t);
    }
}

static void efforts_become_tokens(void **state) {
    (void)state;
    static const struct {
        int thinking;
        const char *effort;
        int64_t tokens, room, wanted;
    } cases[] = {
        {-1, "", -1, 1000, -1},
        {1, "", -1, 1000, -1},
        {1, "low", -1, 800, 75},
        {1, "minimal", -1, 800, 75},
        {1, "medium", -1, 800, 300},
        {1, "high", -1, 800, 600},
        {1, "xhigh", -1, 800, 600},
        {1, "", 100, 800, 100},
        {1, "", 5000, 800, 600},
        {1, "low", 50, 800, 50},
        {0, "none", -1, 800, 0},
        {0, "", 100, 800, 0},
        {1, "high", -1, 100000, 100000 - THINKING_REPLY},
        {1, "", 7, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct params p = {.thinking = cases[i].thinking, .thinking_tokens = cases[i].tokens};
        snprintf(p.effort, sizeof p.effort, "%s", cases[i].effort);
        assert_int_equal(thinking_tokens(&p, cases[i].room), cases[i].wanted);
    }
}

static const char template[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}<think>\n"
    "{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}";
#define ASK                                                                                        \
    "\"messages\":[{\"role\":\"user\",\"content\":\"Tell me of a fox.\"}],\"max_tokens\":60,"      \
    "\"ignore_eos\":true,\"seed\":3,\"coppice\":{\"token_ids\":true,\"logit_hash\":true,"          \
    "\"speculate\":\"%s\"}"

static struct json *ask(struct server_rig *r, const char *path, const char *members,
                        const char *speculate) {
    char body[1000], common[500];
    snprintf(common, sizeof common, ASK, speculate);
    snprintf(body, sizeof body, "{%s,%s}", members, common);
    return server_rig_json(r, path, body, 200);
}

static void same(const struct json *a, const struct json *b) {
    struct json_writer v = {0}, w = {0};
    jw_value(&v, server_rig_at(a, "coppice"));
    jw_value(&w, server_rig_at(b, "coppice"));
    assert_string_equal(v.out.data, w.out.data);
    str_fini(&v.out);
    str_fini(&w.out);
}

// What the next turn renders of this answer is what its tokens say, to the end of the reasoning.
static void is_rendered_again(struct server_rig *r, const struct json *answer) {
    struct json_writer w = {0};
    struct str said = {0};
    jw_begin(&w, '{');
    jw_key(&w, "messages");
    jw_begin(&w, '[');
    jw_begin(&w, '{');
    jw_key_str(&w, "role", "user");
    jw_key_str(&w, "content", "Tell me of a fox.");
    jw_end(&w, '}');
    jw_value(&w, server_rig_at(answer, "choices.0.message"));
    jw_begin(&w, '{');
    jw_key_str(&w, "role", "user");
    jw_key_str(&w, "content", "Go on.");
    jw_end(&w, '}');
    jw_end(&w, ']');
    jw_end(&w, '}');
    struct json *v = server_rig_json(r, "/apply-template", w.out.data, 200);
    str_puts(&said,
             "<|im_start|>user\nTell me of a fox.<|im_end|>\n<|im_start|>assistant\n<think>\n");
    const struct json *ids = server_rig_at(answer, "coppice.token_ids.0");
    for (size_t i = 0; i < json_len(ids); i++)
        tokenizer_decode(tokenizer, (int32_t)json_int(json_at(ids, i), -1), false, &said);
    const char *prompt = server_rig_text(v, "prompt"), *end = strstr(said.data, "</think>\n\n");
    assert_non_null(end);
    said.len = (size_t)(end - said.data) + 10;
    if (strncmp(prompt, said.data, said.len) != 0)
        fail_msg("%s\nis not the beginning of\n%s", said.data, prompt);
    json_free(v);
    str_fini(&said);
    str_fini(&w.out);
}

static void replies_obey(void **state) {
    (void)state;
    static const char *const budgets[] = {
        "\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":0}",
        "\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1}",
        "\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":13}",
        "\"reasoning_effort\":\"low\"",
        "\"thinking_token_budget\":20",
        "\"reasoning_effort\":\"none\""};
    static const int64_t max[] = {0, 1, 13, 5, 20, 0}; // low: an eighth of 45
    char path[] = "/tmp/coppice-template-XXXXXX";
    struct server_rig r;
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, template, sizeof template - 1) == sizeof template - 1);
    close(fd);
    server_rig_start(&r, (struct server_options){.template_file = path});
    unlink(path);
    int64_t closing = tokens_of("\n</think>\n\n");
    for (size_t i = 0; i < sizeof budgets / sizeof budgets[0]; i++)
        for (int hot = 0; hot < 2; hot++) {
            char members[200];
            snprintf(members, sizeof members, "\"temperature\":%d,%s", hot, budgets[i]);
            struct json *a = ask(&r, "/v1/chat/completions", members, "tree");
            struct json *b = ask(&r, "/v1/chat/completions", members, "off");
            struct json *c = ask(&r, "/v1/chat/completions", members, "lookup");
            same(a, b);
            same(a, c);
            int64_t n = server_rig_int(a, "usage.completion_tokens_details.reasoning_tokens");
            if (n < max[i] || n > max[i] + closing + 2)
                fail_msg("%s: %lld tokens of reasoning", members, (long long)n);
            assert_true(strlen(server_rig_text(a, "choices.0.message.content")) > 5);
            // Blanks alone are no reasoning.
            if (n == 0 || server_rig_at(a, "choices.0.message.reasoning_content"))
                is_rendered_again(&r, a);
            json_free(a);
            json_free(b);
            json_free(c);
        }
    struct json *a = ask(&r, "/v1/chat/completions", "\"temperature\":0", "tree");
    assert_int_equal(server_rig_int(a, "usage.completion_tokens_details.reasoning_tokens"), 60);
    json_free(a);
    a = ask(&r, "/v1/messages", "\"temperature\":0", "tree");
    assert_string_equal(server_rig_text(a, "content.0.type"), "text");
    json_free(a);
    a = ask(&r, "/v1/messages",
            "\"temperature\":0,\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":10}", "tree");
    assert_string_equal(server_rig_text(a, "content.0.type"), "thinking");
    assert_string_equal(server_rig_text(a, "content.1.type"), "text");
    json_free(a);
    server_rig_stop(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_end_is_forced),
        cmocka_unit_test(only_reasoning_counts),
        cmocka_unit_test(templates_without_marks_are_refused),
        cmocka_unit_test(efforts_become_tokens),
        cmocka_unit_test(templates_give_the_end_of_reasoning),
        cmocka_unit_test(replies_obey),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
