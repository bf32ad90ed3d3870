// SPDX-License-Identifier: Apache-2.0
// Reads the JSON files of a HuggingFace folder: config.json and its neighbours. A multimodal
// config.json keeps the language model's fields in text_config; they come first.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "convert/config.h"

#define MAX_JSON (256u << 20)

int hf_read(struct hf_file *f, const char *dir, const char *name, bool required, struct err *e) {
    // tokenizer_config.json has 1e30, spelt as an integer, where a model sets texts no limit.
    const struct json_rules rules = {.big_integers = true};
    struct str path = {0}, text = {0};
    str_printf(&path, "%s/%s", dir, name);
    if (path.failed)
        return err_set(e, ERR_MEMORY, "not enough memory to read %s", name);
    f->path = path.data;
    if (!required && access(f->path, F_OK))
        return 0;
    int rc = file_read(&text, f->path, MAX_JSON, e);
    if (!rc && json_parse_with(&f->root, text.data ? text.data : "", text.len, &rules, e))
        rc = err_prefix(e, "%s", f->path);
    if (!rc && json_kind_of(f->root) != JSON_OBJECT)
        rc = err_set(e, ERR_FORMAT, "%s is no JSON object: get the file again", f->path);
    str_fini(&text);
    if (rc)
        return rc;
    const struct json *inner = json_get(f->root, "text_config");
    f->text = json_kind_of(inner) == JSON_OBJECT ? inner : f->root;
    return 0;
}

void hf_close(struct hf_file *f) {
    json_free(f->root);
    free(f->path);
    *f = (struct hf_file){0};
}

static const struct json *member(const struct json *object, const char *key) {
    const char *dot = strchr(key, '.');
    char outer[64];
    if (!dot)
        return json_get(object, key);
    snprintf(outer, sizeof outer, "%.*s", (int)(dot - key), key);
    return json_get(json_get(object, outer), dot + 1);
}

const struct json *hf_get(const struct hf_file *f, const char *key) {
    const struct json *v = member(f->text, key);
    if (json_kind_of(v) == JSON_NULL)
        v = member(f->root, key);
    return json_kind_of(v) == JSON_NULL ? NULL : v;
}

int hf_int(const struct hf_file *f, const char *key, int64_t lo, int64_t hi, int64_t otherwise,
           int64_t *out, struct err *e) {
    const struct json *v = hf_get(f, key);
    *out = otherwise;
    if (!v && otherwise >= lo && otherwise <= hi)
        return 0;
    if (!v)
        return err_set(e, ERR_FORMAT, "%s lacks '%s': give the folder of a complete model", f->path,
                       key);
    if (json_kind_of(v) != JSON_INT)
        return err_set(e, ERR_FORMAT, "'%s' in %s is no integer: get the file again", key, f->path);
    *out = json_int(v, INT64_MIN); // which is what a longer one gives
    if (*out < lo || *out > hi)
        return err_set(e, ERR_FORMAT,
                       "'%s' in %s is %" PRId64 ", allowed are %" PRId64 " to %" PRId64
                       ": get the file again",
                       key, f->path, *out, lo, hi);
    return 0;
}

int hf_float(const struct hf_file *f, const char *key, double otherwise, double *out,
             struct err *e) {
    const struct json *v = hf_get(f, key);
    *out = json_num(v, v ? -1 : otherwise);
    if (*out > 0 && isfinite(*out))
        return 0;
    return err_set(e, ERR_FORMAT, "%s lacks '%s' or it is no positive number: get the file again",
                   f->path, key);
}

int hf_ints(const struct hf_file *f, const struct hf_number *rows, size_t n, struct err *e) {
    int rc = 0;
    for (const struct hf_number *r = rows; r < rows + n && !rc; r++)
        rc = hf_int(f, r->key, r->lo, r->max ? *r->max : r->hi, r->otherwise, r->to, e);
    return rc;
}

bool hf_is(const struct json *v, const char *text) {
    const char *s = json_str(v, NULL);
    return s && !strcmp(s, text);
}

bool hf_string_is(const struct hf_file *f, const char *key, const char *value) {
    return hf_is(hf_get(f, key), value);
}

int hf_check_silu(const struct hf_file *f, struct err *e) {
    const struct json *v = hf_get(f, "hidden_act");
    const char *s = json_str(v, NULL);
    if (!v || hf_string_is(f, "hidden_act", "silu"))
        return 0;
    return err_set(e, ERR_UNSUPPORTED,
                   "%s has hidden_act '%.30s', not silu: this checkpoint cannot be converted",
                   f->path, s ? s : "no text");
}
