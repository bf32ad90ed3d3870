// SPDX-License-Identifier: Apache-2.0
// What a folder says about its tokens beside the vocabulary: which are special, whether they are
// added to a text, and the chat templates.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "convert/vocab/vocab.h"

// The text of a special token: a string, or an object with `content`; NULL when there is none.
static const char *token_text(const struct vocab *v, const char *name, size_t *n) {
    char key[32];
    snprintf(key, sizeof key, "%s_token", name);
    const struct json *t = v->config.root ? hf_get(&v->config, key) : NULL;
    return json_str(json_kind_of(t) == JSON_OBJECT ? json_get(t, "content") : t, n);
}

// Element i of an id or a list of ids in a file; -1 when there is none.
static int64_t listed_id(const struct hf_file *f, const char *name, size_t i) {
    char key[32];
    snprintf(key, sizeof key, "%s_token_id", name);
    const struct json *v = f->root ? hf_get(f, key) : NULL;
    if (json_kind_of(v) == JSON_ARRAY)
        return json_int(json_at(v, i), -1);
    return i == 0 ? json_int(v, -1) : -1;
}

// The id of a special token: by its text, else by number; -1 when there is none.
static int64_t special_id(const struct vocab *v, const char *name) {
    size_t n = 0;
    uint32_t id;
    const char *s = token_text(v, name, &n);
    if (s && map_find(&v->ids, s, n, &id))
        return id;
    int64_t number = listed_id(&v->model, name, 0);
    return number >= 0 ? number : listed_id(&v->generation, name, 0);
}

static void put_id(struct gguf_writer *w, const struct vocab *v, const char *key, int64_t id) {
    char full[64];
    snprintf(full, sizeof full, "tokenizer.ggml.%s_token_id", key);
    if (id >= 0 && id < v->rows)
        gguf_put_int(w, full, GGUF_U32, id);
}

// An id that generation stops at beside two others; -1 when there is none.
static int64_t other_end(const struct vocab *v, int64_t eos, int64_t eot) {
    for (size_t i = 0; i < 8; i++) {
        int64_t id = listed_id(&v->generation, "eos", i);
        if (id < 0)
            id = listed_id(&v->model, "eos", i);
        if (id >= 0 && id != eos && id != eot)
            return id;
    }
    return -1;
}

// The ends beside eos, which files have two keys for: of a turn, named as such or the first other
// id that generation stops at, and of a message, the next one (GLM has three: the text's, the
// user's and a tool's).
static void put_ends(struct gguf_writer *w, const struct vocab *v, int64_t eos) {
    int64_t eot = special_id(v, "eot");
    eot = eot >= 0 ? eot : other_end(v, eos, eos);
    put_id(w, v, "eot", eot);
    put_id(w, v, "eom", other_end(v, eos, eot));
}

void vocab_mark_ends(struct vocab *v) {
    const struct hf_file *const files[] = {&v->generation, &v->model};
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < 8; i++) {
            int64_t id = listed_id(files[k], "eos", i);
            if (id >= 0 && id < v->rows && v->type[id] == TOKEN_USER &&
                vocab_wrapped(v->text[id], v->length[id], "</", ">"))
                v->type[id] = TOKEN_CONTROL;
        }
}

// Whether a kind of token is added to a text: -1 when the folder does not say.
struct added {
    int bos, eos, sep;
};

// The name of the special token that an element of a template is; NULL for another element.
static const char *template_token(const struct json *element) {
    return json_str(json_get(json_get(element, "SpecialToken"), "id"), NULL);
}

static bool is_token(const struct vocab *v, const char *text, const char *name) {
    const char *s = token_text(v, name, NULL);
    return s && !strcmp(s, text);
}

// A template "first A last": what it puts around one text, and between two.
static void read_template(const struct vocab *v, const struct json *step, struct added *a) {
    const struct json *single = json_get(step, "single"), *pair = json_get(step, "pair");
    size_t n = json_len(single), k = json_len(pair);
    const char *first = n > 1 ? template_token(json_at(single, 0)) : NULL;
    const char *last = n > 1 ? template_token(json_at(single, n - 1)) : NULL;
    if (first)
        a->bos = is_token(v, first, "bos") || is_token(v, first, "cls");
    if (last)
        a->eos = is_token(v, last, "eos");
    size_t between = first != NULL ? 2 : 1; // behind the first text
    if (k < between + 2 + (last != NULL))
        return;
    const char *middle = template_token(json_at(pair, between));
    if (middle)
        a->sep = !last && (is_token(v, middle, "sep") || is_token(v, middle, "eos"));
}

static void read_step(const struct vocab *v, const struct json *step, struct added *a) {
    const char *type = json_str(json_get(step, "type"), NULL);
    if (type && !strcmp(type, "ByteLevel")) {
        a->bos = a->bos < 0 ? 0 : a->bos;
        a->eos = a->eos < 0 ? 0 : a->eos;
    }
    if (type && !strcmp(type, "TemplateProcessing"))
        read_template(v, step, a);
}

static int stated(const struct vocab *v, const char *key, int known) {
    const struct json *flag = v->config.root ? hf_get(&v->config, key) : NULL;
    return known < 0 && json_kind_of(flag) == JSON_BOOL ? json_bool(flag, false) : known;
}

static void put_added(struct gguf_writer *w, const struct vocab *v) {
    struct added a = {-1, -1, -1};
    const struct json *post = v->tokenizer.root ? hf_get(&v->tokenizer, "post_processor") : NULL;
    const struct json *steps = json_get(post, "processors");
    for (size_t i = 0; i < json_len(steps); i++)
        read_step(v, json_at(steps, i), &a);
    if (!steps)
        read_step(v, post, &a);
    a.bos = stated(v, "add_bos_token", a.bos);
    a.eos = stated(v, "add_eos_token", a.eos);
    if (a.bos < 0 && v->tokenizer.root)
        a.bos = 0; // tokenizer.json would say it
    if (v->always_bos)
        a.bos = 1;
    if (a.bos >= 0)
        gguf_put_bool(w, "tokenizer.ggml.add_bos_token", a.bos);
    if (a.eos >= 0)
        gguf_put_bool(w, "tokenizer.ggml.add_eos_token", a.eos);
    if (a.sep >= 0)
        gguf_put_bool(w, "tokenizer.ggml.add_sep_token", a.sep);
}

void vocab_put_special(struct gguf_writer *w, const struct vocab *v) {
    int64_t eos = special_id(v, "eos");
    put_id(w, v, "bos", special_id(v, "bos"));
    put_id(w, v, "eos", eos);
    put_ends(w, v, eos);
    put_id(w, v, "unknown", special_id(v, "unk"));
    put_id(w, v, "seperator", special_id(v, "sep"));
    put_id(w, v, "padding", special_id(v, "pad"));
    put_id(w, v, "cls", special_id(v, "cls"));
    put_id(w, v, "mask", special_id(v, "mask"));
    put_added(w, v);
}

// The name of a template as part of a key: letters and digits.
static char *plain_name(struct vocab *v, const char *name, size_t n) {
    char *copy = arena_strndup(&v->arena, name, n);
    for (size_t i = 0; copy && i < n; i++) {
        bool keep = (copy[i] >= '0' && copy[i] <= '9') || (copy[i] >= 'a' && copy[i] <= 'z') ||
                    (copy[i] >= 'A' && copy[i] <= 'Z');
        copy[i] = keep ? copy[i] : '_';
    }
    return copy;
}

// A list of named templates: "default" is the template, the others stand beside it.
static int put_named(struct gguf_writer *w, struct vocab *v, const struct json *list) {
    size_t count = json_len(list), kept = 0;
    const char **names = arena_array(&v->arena, count + 1, sizeof *names);
    size_t *lengths = arena_array(&v->arena, count + 1, sizeof *lengths);
    if (!names || !lengths)
        return vocab_no_memory(v);
    for (size_t i = 0; i < count; i++) {
        size_t n = 0, n_name = 0;
        const char *text = json_str(json_get(json_at(list, i), "template"), &n);
        const char *name = json_str(json_get(json_at(list, i), "name"), &n_name);
        char key[128];
        if (!text || !name || n_name == 0 || n_name > 64)
            continue;
        names[kept] = plain_name(v, name, n_name);
        lengths[kept] = n_name;
        if (!names[kept])
            return vocab_no_memory(v);
        bool usual = !strcmp(names[kept], "default");
        snprintf(key, sizeof key, "tokenizer.chat_template%s%s", usual ? "" : ".",
                 usual ? "" : names[kept]);
        gguf_put_str(w, key, text, n);
        kept += !usual;
    }
    if (kept)
        gguf_put_str_array(w, "tokenizer.chat_templates", names, lengths, kept);
    return 0;
}

int vocab_put_templates(struct gguf_writer *w, struct vocab *v) {
    const struct json *t = v->config.root ? hf_get(&v->config, "chat_template") : NULL;
    if (!t && v->processor.root) // of folders with more than text
        t = hf_get(&v->processor, "chat_template");
    size_t n = 0;
    const char *s = json_str(t, &n);
    if (!utf8_valid(v->template_file.data, v->template_file.len))
        return err_set(v->e, ERR_FORMAT, "%s/chat_template.jinja is not UTF-8: get the file again",
                       v->dir);
    if (v->template_file.len) {
        s = v->template_file.data;
        n = v->template_file.len;
    } else if (json_kind_of(t) == JSON_ARRAY) {
        return put_named(w, v, t);
    }
    if (s && n)
        gguf_put_str(w, "tokenizer.chat_template", s, n);
    return 0;
}
