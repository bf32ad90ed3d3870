// SPDX-License-Identifier: Apache-2.0
// What a template can do with a conversation, found out by rendering small ones: two spellings of
// the same message that give the same text are both understood; words that do not come out, or a
// refusal, show what is not. The conversations are put into values as those of requests are, by
// traits that are tried. A template that refuses everything keeps the defaults.
#include "text/chat/impl.h"

#include <stdio.h>
#include <string.h>

// A probe's renderings are tiny; one that is not is a template to keep short.
static const struct jinja_limits probe_limits = {
    .steps = 100000, .depth = 100, .output = 1 << 20, .memory = 16 << 20};

static const char thought[] = "a thought of this probe";

enum { LONG = 4 };

struct probe {
    const struct chat_template *t;
    struct json *tool;
    struct err *e;
    int rc;        // ERR_MEMORY ends the probes
    int long_ones; // renderings beyond the limits; from LONG on nothing is tried any more
    bool undefined_lists, thinking;
};

static int parse_tool(struct probe *p) {
    static const char tool[] =
        "{\"type\":\"function\",\"function\":{\"name\":\"probe_tool\",\"description\":"
        "\"text\",\"parameters\":{\"type\":\"object\",\"properties\":{\"probe_field\":{\"type\":"
        "\"string\",\"description\":\"text\"}},\"required\":[\"probe_field\"]}}}";
    return json_parse(&p->tool, tool, sizeof tool - 1, p->e);
}

// The words of turn i.
enum { WORDS = 24 };
static const char *words_of_turn(char words[static WORDS], int i) {
    snprintf(words, WORDS, "some words %d", i + 1);
    return words;
}

static void add_words(struct conversation *v, struct conversation_part *p, const char *text) {
    if (p)
        p->text = conversation_copy(v, text, strlen(text));
}

static void add_call(struct conversation *v, struct conversation_turn *t) {
    struct conversation_part *p = conversation_part(v, t, PART_CALL);
    if (!p)
        return;
    p->id = words_of_text("call_0123456789abcdef01234567");
    p->name = words_of_text("probe_tool");
    p->text = words_of_text("{\"probe_key\": \"probe_value\"}");
}

// A turn of a conversation that is tried. s, u, a: words of the system, the user, the assistant; e:
// of the user and empty; c, d: a call, two of them; t: a result; A, C, W: reasoning before words, a
// call, words and a call.
static void add_turn(struct conversation *v, char what, int i) {
    enum conversation_role role = what == 's'              ? CONVERSATION_SYSTEM
                                  : what == 't'            ? CONVERSATION_TOOL
                                  : strchr("acdACW", what) ? CONVERSATION_ASSISTANT
                                                           : CONVERSATION_USER;
    struct conversation_turn *t = conversation_new_turn(v, role);
    struct conversation_part *result = NULL;
    char words[WORDS];
    if (!t)
        return;
    t->list = !strchr("cdC", what);
    if (what == 't' && (result = conversation_part(v, t, PART_RESULT)) != NULL) {
        result->id = words_of_text("call_0123456789abcdef01234567");
        result->list = true;
        add_words(v, conversation_inner(v, result, PART_TEXT), words_of_turn(words, i));
    }
    if (strchr("ACW", what))
        add_words(v, conversation_part(v, t, PART_REASONING), thought);
    if (strchr("suaeAW", what))
        add_words(v, conversation_part(v, t, PART_TEXT),
                  what == 'e' ? "" : words_of_turn(words, i));
    for (int n = what == 'd' ? 2 : strchr("cCW", what) != NULL; n > 0; n--)
        add_call(v, t);
}

static int render_context(const struct probe *p, const struct chat_traits *form,
                          const struct conversation *v, struct jinja_output *out, struct err *e) {
    struct chat_template tried = *p->t;
    const struct chat_input in = {.said = v};
    struct jinja_value messages = {0}, last, tools = {0};
    struct jinja_context *c = NULL;
    int rc = jinja_context_create(&c, &probe_limits, e);
    if (rc)
        return rc;
    jinja_context_changes(c);
    tried.traits = *form;
    rc = chat_repair(&tried, c, &in, &messages, &last, e);
    if (!rc)
        rc = chat_tools(c, v, &tools, e);
    jinja_set(c, "bos_token", jinja_string(c, p->t->bos.data, p->t->bos.len, false));
    jinja_set(c, "eos_token", jinja_string(c, p->t->eos.data, p->t->eos.len, false));
    jinja_set(c, "messages", messages);
    jinja_set(c, "add_generation_prompt", jinja_bool(false));
    if (v->n_tools)
        jinja_set(c, "tools", tools);
    else if (!p->undefined_lists)
        jinja_set(c, "tools", jinja_none());
    if (!p->undefined_lists)
        jinja_set(c, "documents", jinja_none());
    if (p->thinking)
        jinja_set(c, "enable_thinking", jinja_bool(true));
    if (!rc)
        rc = jinja_render(p->t->program, c, out, e);
    jinja_context_free(c);
    return rc;
}

// Renders turns in a form, with a tool where `tools`. False when the template refuses them.
static bool render_turns(struct probe *p, const struct chat_traits *form, const char *turns,
                         bool tools, struct jinja_output *out) {
    struct conversation v = {0};
    struct err e = {0};
    *out = (struct jinja_output){0};
    if (p->rc || p->long_ones >= LONG)
        return false;
    for (int i = 0; turns[i]; i++)
        add_turn(&v, turns[i], i);
    struct conversation_tool *tool = tools ? conversation_tool(&v, TOOL_OTHER) : NULL;
    if (tool)
        tool->raw = p->tool;
    int rc = render_context(p, form, &v, out, &e);
    conversation_fini(&v);
    p->long_ones += rc == ERR_LIMIT;
    if (rc == ERR_MEMORY)
        p->rc = err_set(p->e, rc, "%s", e.text);
    return rc == 0;
}

static bool output_has(const struct jinja_output *o, const char *word) {
    return o->text.data && strstr(o->text.data, word);
}

static bool output_has_turn(const struct jinja_output *o, int i) {
    char words[WORDS];
    return output_has(o, words_of_turn(words, i));
}

// Whether the words of turns i and k come out.
static bool shows_both(struct probe *p, const char *turns, int i, int k) {
    const struct chat_traits plain = {0};
    struct jinja_output o;
    bool is = render_turns(p, &plain, turns, false, &o) && output_has_turn(&o, i) &&
              output_has_turn(&o, k);
    jinja_output_fini(&o);
    return is;
}

// Contents as strings and as lists of parts: of turn i, which is of that role.
static enum chat_parts probe_parts(struct probe *p, const struct chat_traits *calls,
                                   const char *turns, int i, enum conversation_role role) {
    struct chat_traits form = *calls;
    struct jinja_output a, b;
    form.parts[role] = CHAT_PARTS_JOIN;
    bool by_text = render_turns(p, &form, turns, false, &a) && output_has_turn(&a, i);
    form.parts[role] = CHAT_PARTS_KEEP;
    bool by_parts = render_turns(p, &form, turns, false, &b) && output_has_turn(&b, i);
    bool same = by_text && by_parts && a.text.len == b.text.len &&
                memcmp(a.text.data, b.text.data, a.text.len) == 0;
    jinja_output_fini(&a);
    jinja_output_fini(&b);
    return same ? CHAT_PARTS_KEEP : by_parts && !by_text ? CHAT_PARTS_NEED : CHAT_PARTS_JOIN;
}

// The form of calls, and nothing else that was found.
static struct chat_traits form_of_calls(const struct chat_traits *is) {
    return (struct chat_traits){.text_arguments = is->text_arguments,
                                .null_content = is->null_content,
                                .short_ids = is->short_ids};
}

// Finds a way to show calls: arguments as objects or text, empty or no content, long or short ids.
// False where there is none.
static bool probe_calls(struct probe *p, struct chat_traits *is) {
    bool known = false;
    for (int way = 0; way < 8 && !known; way++) {
        const struct chat_traits tried = {
            .text_arguments = way & 1, .short_ids = way & 2, .null_content = way & 4};
        struct jinja_output o;
        known = render_turns(p, &tried, "uct", true, &o) && output_has(&o, "probe_value") &&
                output_has(&o, tried.text_arguments ? "\"probe_key\"" : "probe_key") &&
                !output_has(&o, "'probe_key'");
        jinja_output_fini(&o);
        if (!known)
            continue;
        is->text_arguments = tried.text_arguments;
        is->short_ids = tried.short_ids;
        is->null_content = tried.null_content;
    }
    return known;
}

// gpt-oss refuses a call that has both content and reasoning.
static void probe_reasoning(struct probe *p, struct chat_traits *is) {
    struct chat_traits form = form_of_calls(is);
    bool taken[2];
    form.null_content = false;
    for (int i = 0; i < 2; i++) {
        struct jinja_output o;
        taken[i] = render_turns(p, &form, i ? "uW" : "uC", true, &o);
        jinja_output_fini(&o);
    }
    is->one_of_both = taken[0] && !taken[1];
}

static void probe_system(struct probe *p, struct chat_traits *is) {
    if (shows_both(p, "suasu", 0, 3))
        is->system = CHAT_SYSTEM_ANYWHERE;
    else if (shows_both(p, "su", 0, 1))
        is->system = CHAT_SYSTEM_FIRST;
    else if (shows_both(p, "u", 0, 0))
        is->system = CHAT_SYSTEM_NEVER;
}

// Whether declarations of tools never come out, though the template takes conversations with them.
static bool probe_tools(struct probe *p) {
    static const char *const tried[] = {"u", "su", "uau", "suau"};
    const struct chat_traits plain = {0};
    bool taken = false, shown = false;
    for (size_t i = 0; i < sizeof tried / sizeof *tried && !shown; i++) {
        struct jinja_output o;
        taken |= render_turns(p, &plain, tried[i], true, &o);
        shown = output_has(&o, "probe_tool") || output_has(&o, "probe_field");
        jinja_output_fini(&o);
    }
    return taken && !shown && p->long_ones == 0;
}

enum taken { REFUSED, LOST, TAKEN };

// What becomes of a conversation of such turns: whether all of its words come out.
static enum taken try_turns(struct probe *p, const struct chat_traits *is, const char *turns) {
    struct chat_traits form = form_of_calls(is);
    struct jinja_output o;
    memcpy(form.parts, is->parts, sizeof form.parts);
    bool tools = strpbrk(turns, "cdt") != NULL;
    enum taken result = render_turns(p, &form, turns, tools, &o) ? TAKEN : REFUSED;
    for (int i = 0; turns[i] && result == TAKEN; i++)
        result = strchr("ecd", turns[i]) || output_has_turn(&o, i) ? TAKEN : LOST;
    jinja_output_fini(&o);
    return result;
}

// Which orders of turns the template does not take though it takes what they can be made into.
static void probe_turns(struct probe *p, struct chat_traits *is, bool template_has_calls) {
    bool talks = try_turns(p, is, "uau") == TAKEN;
    is->join_users = try_turns(p, is, "u") == TAKEN && try_turns(p, is, "uu") != TAKEN;
    is->join_answers = talks && try_turns(p, is, "uaau") != TAKEN;
    is->user_first = try_turns(p, is, "au") != TAKEN && try_turns(p, is, "eau") == TAKEN;
    is->lone_system = is->system != CHAT_SYSTEM_NEVER && try_turns(p, is, "s") == LOST;
    is->plain_calls = talks && !template_has_calls;
    is->plain_results = talks && try_turns(p, is, template_has_calls ? "uct" : "uat") != TAKEN;
    is->single_calls = template_has_calls && !is->plain_results &&
                       try_turns(p, is, "uctct") == TAKEN && try_turns(p, is, "udtt") == REFUSED;
    is->user_after = template_has_calls && !is->plain_results &&
                     try_turns(p, is, "uctau") == TAKEN && try_turns(p, is, "uctu") != TAKEN;
}

static bool is_blank_char(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

// The closing mark with blanks on both sides, where nothing but blanks stands before it.
static void take_closing(const char *text, const char *mark, struct str *out) {
    size_t before = 0, len = strlen(mark), after = 0;
    while (is_blank_char(text[before]))
        before++;
    bool is = strncmp(text + before, mark, len) == 0;
    while (is && is_blank_char(text[before + len + after]))
        after++;
    if (is && before + after < 16)
        str_append(out, text, before + len + after);
}

// How reasoning ends, as in a message with reasoning and content. The bare mark where no message
// shows it.
static void probe_closing(struct probe *p, const struct chat_template *t, struct str *out) {
    const char *mark = reasoning_closing(t->family);
    const struct chat_traits plain = {0};
    struct jinja_output o = {0};
    p->thinking = true;
    if (mark && render_turns(p, &plain, "uA", false, &o) && output_has(&o, thought))
        take_closing(strstr(o.text.data, thought) + sizeof thought - 1, mark, out);
    if (mark && out->len == 0)
        str_puts(out, mark);
    if (out->failed && !p->rc)
        p->rc = err_set(p->e, ERR_MEMORY, "no memory to try a chat template");
    jinja_output_fini(&o);
}

int chat_probe(struct chat_template *t, struct err *e) {
    struct probe p = {.t = t, .e = e};
    const struct chat_traits plain = {0};
    struct chat_traits is = {.developer = jinja_mentions(t->program, "developer")};
    p.rc = parse_tool(&p);
    if (!shows_both(&p, "u", 0, 0)) {
        p.undefined_lists = true;
        p.undefined_lists = shows_both(&p, "u", 0, 0);
    }
    is.undefined_lists = p.undefined_lists;
    probe_system(&p, &is);
    is.parts[CONVERSATION_USER] = probe_parts(&p, &plain, "u", 0, CONVERSATION_USER);
    is.parts[CONVERSATION_SYSTEM] = is.parts[CONVERSATION_DEVELOPER] =
        probe_parts(&p, &plain, "su", 0, CONVERSATION_SYSTEM);
    is.parts[CONVERSATION_ASSISTANT] = probe_parts(&p, &plain, "uau", 1, CONVERSATION_ASSISTANT);
    bool template_has_calls = probe_calls(&p, &is);
    const struct chat_traits calls = form_of_calls(&is);
    is.parts[CONVERSATION_TOOL] = probe_parts(&p, &calls, "uct", 2, CONVERSATION_TOOL);
    probe_turns(&p, &is, template_has_calls);
    is.tools_lost = probe_tools(&p);
    probe_reasoning(&p, &is);
    probe_closing(&p, t, &t->closing);
    json_free(p.tool);
    t->traits = is;
    return p.rc;
}
