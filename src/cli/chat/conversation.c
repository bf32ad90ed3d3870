// SPDX-License-Identifier: Apache-2.0
// See conversation.h. Messages are kept as the JSON that a request would hold, so that there is one
// way from messages to tokens.
#include "cli/chat/conversation.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/utf8.h"
#include "base/vec.h"

enum { TEMPLATE_MAX = 4 << 20, MESSAGES_MAX = 64 << 20 };

int conversation_template(const char *path, const struct tokenizer *t, struct chat_template **out,
                          struct err *e) {
    struct str text = {0};
    *out = NULL;
    int rc = file_read(&text, path, TEMPLATE_MAX, e);
    if (!rc && (rc = chat_template_create(out, text.data ? text.data : "", text.len, t, e)) != 0)
        err_prefix(e, "%s", path);
    str_fini(&text);
    return rc;
}

int conversation_template_of_model(const char *path, struct tokenizer **t,
                                   struct chat_template **out, struct err *e) {
    struct gguf *g;
    int rc = gguf_open(&g, path, e);
    if (rc)
        return rc;
    rc = tokenizer_create(t, g, e);
    if (!rc)
        rc = chat_template_of_gguf(out, g, *t, e);
    gguf_close(g);
    return rc ? err_prefix(e, "%s", path) : 0;
}

// --chat-template-kwargs with --no-thinking in front of them.
static int read_variables(struct conversation *c, const struct cli_args *a, struct err *e) {
    const char *given = options_str(&a->opt, OPT_TEMPLATE_KWARGS);
    struct err why = {0};
    struct json_builder built = {0};
    struct json_writer w = {.builder = &built};
    if (given && (json_parse(&c->variables, given, strlen(given), &why) ||
                  json_kind_of(c->variables) != JSON_OBJECT))
        return err_set(e, ERR_USAGE,
                       "--chat-template-kwargs is no JSON object, as in {\"enable_thinking\": "
                       "false}%s%s",
                       why.text[0] ? ": " : "", why.text);
    if (!options_flag(&a->opt, OPT_NO_THINKING))
        return 0;
    jw_begin(&w, '{');
    jw_key_bool(&w, "enable_thinking", false);
    jw_key_bool(&w, "thinking", false);
    json_each(c->variables, jw_member, &w);
    jw_end(&w, '}');
    json_free(c->variables);
    return json_built(&built, &c->variables, "the variables of the template", e);
}

int conversation_open(struct conversation *c, const struct cli_args *a, const struct session *s,
                      struct err *e) {
    *c = (struct conversation){.t = session_tokenizer(s)};
    const char *model = options_str(&a->opt, OPT_MODEL);
    if (!c->t)
        return err_set(e, ERR_UNSUPPORTED, "%s has no tokenizer; 'generate --ids' can run it",
                       model);
    int rc = read_variables(c, a, e);
    if (!rc && options_given(&a->opt, OPT_TEMPLATE_FILE))
        rc = conversation_template(options_str(&a->opt, OPT_TEMPLATE_FILE), c->t, &c->form, e);
    else if (!rc && (rc = chat_template_of_gguf(&c->form, session_file(s), c->t, e)) != 0)
        err_prefix(e, "%s", model);
    return rc;
}

void conversation_close(struct conversation *c) {
    chat_template_free(c->form);
    json_free(c->variables);
    conversation_cut(c, 0);
    free(c->messages);
    *c = (struct conversation){0};
}

static int check_utf8(const struct str *text, struct err *e) {
    for (size_t at = 0; at < text->len;) {
        uint32_t code;
        int n = utf8_decode(text->data + at, text->len - at, &code);
        if (n <= 0)
            return err_set(e, ERR_FORMAT,
                           "the text is not UTF-8 at byte %zu (0x%02X); convert it to UTF-8", at,
                           (unsigned char)text->data[at]);
        at += (size_t)n;
    }
    return 0;
}

// Appends the message that was built.
static int append_message(struct conversation *c, struct json_builder *built, struct err *e) {
    struct json *m;
    int rc = json_built(built, &m, "the conversation", e);
    if (!rc)
        rc = vec_reserve(&c->messages, &c->cap, (int64_t)c->n + 1, sizeof *c->messages, e);
    if (rc)
        json_free(m);
    else
        c->messages[c->n++] = m;
    return rc;
}

int conversation_say(struct conversation *c, const char *role, const struct str *text,
                     const struct str *reasoning, struct err *e) {
    struct json_builder built = {0};
    struct json_writer w = {.builder = &built};
    int rc = check_utf8(text, e);
    if (rc)
        return rc;
    jw_begin(&w, '{');
    jw_key_str(&w, "role", role);
    jw_key_text(&w, "content", text->data, text->len);
    if (reasoning && reasoning->len)
        jw_key_text(&w, "reasoning_content", reasoning->data, reasoning->len);
    jw_end(&w, '}');
    return append_message(c, &built, e);
}

void conversation_cut(struct conversation *c, size_t n) {
    while (c->n > n)
        json_free(c->messages[--c->n]);
}

static int list_messages(const struct conversation *c, struct json **out, struct err *e) {
    struct json_builder built = {0};
    struct json_writer w = {.builder = &built};
    jw_begin(&w, '[');
    for (size_t i = 0; i < c->n; i++)
        jw_value(&w, c->messages[i]);
    jw_end(&w, ']');
    return json_built(&built, out, "the conversation", e);
}

int conversation_render(const struct conversation *c, struct chat_text *out, struct err *e) {
    struct json *messages = NULL;
    *out = (struct chat_text){0};
    int rc = list_messages(c, &messages, e);
    const struct chat_input in = {
        .messages = messages, .kwargs = c->variables, .add_generation_prompt = true};
    if (!rc)
        rc = chat_render(c->form, &in, out, e);
    json_free(messages);
    return rc;
}

// The kept part of the messages of `in`, which are long for the options or for `room` tokens.
// *kept: the caller's; NULL where all stays.
static int shorten_messages(const struct conversation *c, const struct compression *k,
                            const struct chat_input *in, int64_t room, struct json **kept,
                            struct prefill_report *report, struct err *e) {
    struct prefill_prompt p = {.room = room, .tools = json_len(in->tools) > 0};
    struct token_list ids = {0};
    struct chat_text x = {0};
    *kept = NULL;
    int rc = chat_render(c->form, in, &x, e);
    if (!rc)
        rc = chat_encode(c->t, &x, &ids, e);
    p.tokens = (int64_t)ids.count;
    const char *reason = prefill_skip(&k->options, &p);
    *report =
        (struct prefill_report){.tried = true, .from = p.tokens, .to = p.tokens, .reason = reason};
    if (!rc && !reason)
        rc = prefill_messages(k->c, &k->options, in->messages, p.tokens, kept, report, e);
    report->from = report->to = p.tokens;
    token_list_fini(&ids);
    chat_text_fini(&x);
    return rc;
}

int conversation_shorten(struct conversation *c, const struct compression *k, int64_t room,
                         struct prefill_report *report, struct err *e) {
    struct json *messages = NULL, *kept = NULL;
    if (!k->c)
        return 0;
    int rc = list_messages(c, &messages, e);
    const struct chat_input in = {
        .messages = messages, .kwargs = c->variables, .add_generation_prompt = true};
    if (!rc)
        rc = shorten_messages(c, k, &in, room, &kept, report, e);
    if (!rc && kept)
        conversation_cut(c, 0);
    for (size_t i = 0; i < json_len(kept) && !rc; i++) { // as many as before
        struct json_builder built = {0};
        json_build_shared(&built, json_at(kept, i));
        rc = append_message(c, &built, e);
    }
    json_free(kept);
    json_free(messages);
    return rc;
}

int conversation_read(const char *path, struct json **out, struct err *e) {
    const struct json_rules rules = {.depth = 256, .big_integers = true};
    struct str text = {0};
    *out = NULL;
    int rc = file_read(&text, path, MESSAGES_MAX, e);
    if (!rc && (rc = json_parse_with(out, text.data ? text.data : "", text.len, &rules, e)) != 0)
        err_prefix(e, "%s", path);
    if (!rc && json_kind_of(*out) != JSON_OBJECT) {
        rc = err_set(e, ERR_FORMAT,
                     "%s: what a template is rendered with is an object: "
                     "{\"messages\": [...], ...}",
                     path);
        json_free(*out);
        *out = NULL;
    }
    str_fini(&text);
    return rc;
}

// The input of the model for an object with messages, tools, documents and variables of the
// template, or of what stays of it, where k compresses.
static int render_file(const struct conversation *c, const char *path, const struct compression *k,
                       int64_t room, struct chat_text *out, struct prefill_report *report,
                       struct err *e) {
    struct json *file = NULL, *kept = NULL;
    *out = (struct chat_text){0};
    char place[CHAT_PLACE_NAME];
    int rc = conversation_read(path, &file, e);
    if (rc)
        return rc;
    rc = chat_check(json_get(file, "messages"), false, place, e);
    struct chat_input in = {.messages = json_get(file, "messages"),
                            .tools = json_get(file, "tools"),
                            .documents = json_get(file, "documents"),
                            .kwargs = file,
                            .add_generation_prompt =
                                json_bool(json_get(file, "add_generation_prompt"), true)};
    if (!rc && k->c)
        rc = shorten_messages(c, k, &in, room, &kept, report, e);
    if (kept)
        in.messages = kept;
    if (!rc)
        rc = chat_render(c->form, &in, out, e);
    json_free(kept);
    json_free(file);
    return rc ? err_prefix(e, "%s", path) : 0;
}

static int say_options(struct conversation *c, const struct cli_args *a, struct err *e) {
    const char *system = options_str(&a->opt, OPT_SYSTEM);
    struct str text = {0}, first = {0};
    int rc = cli_read_text(a, &text, e);
    if (!rc && system) {
        str_puts(&first, system);
        rc = conversation_say(c, "system", &first, NULL, e);
    }
    if (!rc)
        rc = conversation_say(c, "user", &text, NULL, e);
    str_fini(&text);
    str_fini(&first);
    return rc;
}

// --messages holds all that a template is rendered with.
static int check_options(const struct cli_args *a, struct err *e) {
    static const int others[] = {OPT_PROMPT,          OPT_FILE,       OPT_IDS, OPT_SYSTEM,
                                 OPT_TEMPLATE_KWARGS, OPT_NO_THINKING};
    if (options_given(&a->opt, OPT_IDS))
        return err_set(e, ERR_USAGE, "--ids are no message; give -p TEXT, -f FILE or --messages");
    if (!options_given(&a->opt, OPT_MESSAGES))
        return 0;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (options_given(&a->opt, others[i]))
            return err_set(e, ERR_USAGE,
                           "--messages and --%s were both given; put everything into the file",
                           cli_options[others[i]].name);
    return 0;
}

int conversation_prompt(const struct cli_args *a, const struct session *s,
                        const struct compression *k, struct token_list *out,
                        struct prefill_report *report, struct err *e) {
    struct conversation c = {0};
    struct chat_text x = {0};
    const char *file = options_str(&a->opt, OPT_MESSAGES);
    int64_t room = model_max_ctx(session_model(s)) - 1;
    int rc = check_options(a, e);
    if (!rc)
        rc = conversation_open(&c, a, s, e);
    if (!rc && !file)
        rc = say_options(&c, a, e);
    if (!rc && !file)
        rc = conversation_shorten(&c, k, room, report, e);
    if (!rc)
        rc = file ? render_file(&c, file, k, room, &x, report, e) : conversation_render(&c, &x, e);
    token_list_bound(out, room + 1);
    if (!rc)
        rc = chat_encode(c.t, &x, out, e);
    if (!rc && report->tried)
        report->to = (int64_t)out->count;
    chat_text_fini(&x);
    conversation_close(&c);
    return rc;
}
