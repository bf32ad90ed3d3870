// SPDX-License-Identifier: Apache-2.0
// See dialog.h.
#include "cli/chat/dialog.h"

#include <string.h>

#include "base/file.h"
#include "base/utf8.h"
#include "text/chat/read.h"

enum { TEMPLATE_MAX = 4 << 20, MESSAGES_MAX = 64 << 20 };

int dialog_template(const char *path, const struct tokenizer *t, struct chat_template **out,
                    struct err *e) {
    struct str text = {0};
    *out = NULL;
    int rc = file_read(&text, path, TEMPLATE_MAX, e);
    if (!rc && (rc = chat_template_create(out, text.data ? text.data : "", text.len, t, e)) != 0)
        err_prefix(e, "%s", path);
    str_fini(&text);
    return rc;
}

int dialog_template_of_model(const char *path, struct tokenizer **t, struct chat_template **out,
                             struct err *e) {
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
static int read_variables(struct dialog *c, const struct cli_args *a, struct err *e) {
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

int dialog_open(struct dialog *c, const struct cli_args *a, const struct session *s,
                struct err *e) {
    *c = (struct dialog){.t = session_tokenizer(s)};
    const char *model = options_str(&a->opt, OPT_MODEL);
    if (!c->t)
        return err_set(e, ERR_UNSUPPORTED, "%s has no tokenizer; 'generate --ids' can run it",
                       model);
    int rc = read_variables(c, a, e);
    if (!rc && options_given(&a->opt, OPT_TEMPLATE_FILE))
        rc = dialog_template(options_str(&a->opt, OPT_TEMPLATE_FILE), c->t, &c->form, e);
    else if (!rc && (rc = chat_template_of_gguf(&c->form, session_file(s), c->t, e)) != 0)
        err_prefix(e, "%s", model);
    if (!rc)
        rc = chat_template_set_tool_format(c->form, options_str(&a->opt, OPT_TOOL_FORMAT), e);
    return rc;
}

void dialog_close(struct dialog *c) {
    chat_template_free(c->form);
    json_free(c->variables);
    dialog_cut(c, 0);
    *c = (struct dialog){0};
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

static void add_part(struct conversation *v, struct conversation_turn *t,
                     enum conversation_kind kind, const struct str *text) {
    struct conversation_part *p = conversation_part(v, t, kind);
    if (p)
        p->text = conversation_copy(v, text->data ? text->data : "", text->len);
}

int dialog_say(struct dialog *c, enum conversation_role role, const struct str *text,
               const struct str *reasoning, struct err *e) {
    int rc = check_utf8(text, e);
    if (rc)
        return rc;
    struct conversation_turn *t = conversation_new_turn(&c->conversation, role);
    if (reasoning && reasoning->len)
        add_part(&c->conversation, t, PART_REASONING, reasoning);
    add_part(&c->conversation, t, PART_TEXT, text);
    return c->conversation.failed ? err_set(e, ERR_MEMORY, "no memory for the conversation") : 0;
}

void dialog_cut(struct dialog *c, int n) {
    if (n == 0)
        conversation_fini(&c->conversation);
    else if (c->conversation.n_turns > n)
        c->conversation.n_turns = n;
    c->conversation.failed = false;
}

int dialog_render(const struct dialog *c, struct chat_text *out, struct err *e) {
    const struct chat_input in = {
        .said = &c->conversation, .kwargs = c->variables, .add_generation_prompt = true};
    return chat_render(c->form, &in, out, e);
}

// Leaves out of v, which `in` is of, what the options do where it is long for them or for `room`
// tokens.
static int shorten(const struct dialog *c, const struct compression *k, const struct chat_input *in,
                   struct conversation *v, int64_t room, struct prefill_report *report,
                   struct err *e) {
    struct prefill_prompt p = {.room = room, .tools = v->n_tools > 0};
    struct token_list ids = {0};
    struct chat_text x = {0};
    int rc = chat_render(c->form, in, &x, e);
    if (!rc)
        rc = chat_encode(c->t, &x, &ids, e);
    p.tokens = (int64_t)ids.count;
    const char *reason = prefill_skip(&k->options, &p);
    *report =
        (struct prefill_report){.tried = true, .from = p.tokens, .to = p.tokens, .reason = reason};
    if (!rc && !reason)
        rc = prefill_conversation(k->c, &k->options, v, p.tokens, report, e);
    report->from = report->to = p.tokens;
    token_list_fini(&ids);
    chat_text_fini(&x);
    return rc;
}

int dialog_shorten(struct dialog *c, const struct compression *k, int64_t room,
                   struct prefill_report *report, struct err *e) {
    const struct chat_input in = {
        .said = &c->conversation, .kwargs = c->variables, .add_generation_prompt = true};
    return k->c ? shorten(c, k, &in, &c->conversation, room, report, e) : 0;
}

int dialog_read_file(const char *path, struct json **out, struct err *e) {
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
static int render_file(const struct dialog *c, const char *path, const struct compression *k,
                       int64_t room, struct chat_text *out, struct prefill_report *report,
                       struct err *e) {
    struct json *file = NULL;
    struct conversation v = {0};
    char place[CONVERSATION_PLACE];
    int rc = dialog_read_file(path, &file, e);
    if (rc)
        return rc;
    const struct chat_input in = {.said = &v,
                                  .documents = json_get(file, "documents"),
                                  .kwargs = file,
                                  .add_generation_prompt =
                                      json_bool(json_get(file, "add_generation_prompt"), true)};
    rc = conversation_read(&v, json_get(file, "messages"), false, place, e);
    if (!rc)
        rc = conversation_read_raw_tools(&v, json_get(file, "tools"), e);
    if (!rc && k->c)
        rc = shorten(c, k, &in, &v, room, report, e);
    if (!rc)
        rc = chat_render(c->form, &in, out, e);
    conversation_fini(&v);
    json_free(file);
    return rc ? err_prefix(e, "%s", path) : 0;
}

static int say_options(struct dialog *c, const struct cli_args *a, struct err *e) {
    const char *system = options_str(&a->opt, OPT_SYSTEM);
    struct str text = {0}, first = {0};
    int rc = cli_read_text(a, &text, e);
    if (!rc && system) {
        str_puts(&first, system);
        rc = dialog_say(c, CONVERSATION_SYSTEM, &first, NULL, e);
    }
    if (!rc)
        rc = dialog_say(c, CONVERSATION_USER, &text, NULL, e);
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

int dialog_prompt(const struct cli_args *a, const struct session *s, const struct compression *k,
                  struct token_list *out, struct prefill_report *report, struct err *e) {
    struct dialog c = {0};
    struct chat_text x = {0};
    const char *file = options_str(&a->opt, OPT_MESSAGES);
    int64_t room = model_max_ctx(session_model(s)) - 1;
    int rc = check_options(a, e);
    if (!rc)
        rc = dialog_open(&c, a, s, e);
    if (!rc && !file)
        rc = say_options(&c, a, e);
    if (!rc && !file)
        rc = dialog_shorten(&c, k, room, report, e);
    if (!rc)
        rc = file ? render_file(&c, file, k, room, &x, report, e) : dialog_render(&c, &x, e);
    token_list_bound(out, room + 1);
    if (!rc)
        rc = chat_encode(c.t, &x, out, e);
    if (!rc && report->tried)
        report->to = (int64_t)out->count;
    chat_text_fini(&x);
    dialog_close(&c);
    return rc;
}
