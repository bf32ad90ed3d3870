// SPDX-License-Identifier: Apache-2.0
// SentencePiece: tokenizer.model, a protocol-buffer message (its fields are those of
// sentencepiece_model.proto), and the added tokens of the JSON files next to it.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "convert/vocab/vocab.h"

#define PAD_SCORE   -10000.0f
#define ADDED_SCORE -1000.0f

// A message, or what is left of it.
struct message {
    const unsigned char *at, *end;
    bool broken;
};

// One field: its number and, by wire type, a number or bytes.
struct field {
    unsigned number, wire;
    uint64_t value;
    struct message bytes;
};

static uint64_t read_varint(struct message *m) {
    uint64_t v = 0;
    for (int shift = 0; shift < 64 && m->at < m->end; shift += 7) {
        unsigned char byte = *m->at++;
        v |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80)
            return v;
    }
    m->broken = true;
    return 0;
}

static const unsigned char *take_bytes(struct message *m, uint64_t n) {
    const unsigned char *at = m->at;
    if (n > (uint64_t)(m->end - m->at)) {
        m->broken = true;
        return NULL;
    }
    m->at += n;
    return at;
}

// The next field; false at the end or when the rest makes no sense.
static bool next_field(struct message *m, struct field *f) {
    if (m->broken || m->at == m->end)
        return false;
    uint64_t key = read_varint(m);
    *f = (struct field){.number = (unsigned)(key >> 3), .wire = key & 7};
    uint64_t n = f->wire == 1 ? 8 : f->wire == 5 ? 4 : 0;
    if (f->wire == 0)
        f->value = read_varint(m);
    else if (f->wire == 2)
        n = read_varint(m);
    else if (n == 0)
        m->broken = true;
    if (m->broken || f->wire == 0)
        return !m->broken;
    const unsigned char *at = take_bytes(m, n);
    if (!at)
        return false;
    f->bytes = (struct message){at, at + n, false};
    if (f->wire != 2)
        memcpy(&f->value, at, (size_t)n);
    return true;
}

struct piece {
    const char *text;
    size_t n;
    float score;
    int type;
};

static bool read_piece(struct message m, struct piece *p) {
    struct field f;
    *p = (struct piece){.type = TOKEN_NORMAL};
    while (next_field(&m, &f)) {
        uint32_t bits = (uint32_t)f.value;
        if (f.number == 1 && f.wire == 2) {
            p->text = (const char *)f.bytes.at;
            p->n = (size_t)(f.bytes.end - f.bytes.at);
        } else if (f.number == 2 && f.wire == 5) {
            memcpy(&p->score, &bits, sizeof bits);
        } else if (f.number == 3 && f.wire == 0) {
            p->type = f.value <= TOKEN_BYTE ? (int)f.value : 0;
        }
    }
    return !m.broken && p->text && p->n && p->type && p->n < INT32_MAX && utf8_valid(p->text, p->n);
}

static int refuse_damaged(struct vocab *v) {
    return err_set(v->e, ERR_FORMAT, "%s is damaged: get it again", v->where.data);
}

// A text as a vocabulary holds it: user-defined tokens with blanks, not U+2581.
static char *added_text(struct vocab *v, const char *s, size_t *n, enum token_type type) {
    char *copy = arena_strndup(&v->arena, s, *n);
    size_t kept = 0;
    for (size_t i = 0; copy && type == TOKEN_USER && i < *n;) {
        bool blank = i + 3 <= *n && !memcmp(s + i, "\xE2\x96\x81", 3);
        copy[kept++] = blank ? ' ' : s[i];
        i += blank ? 3 : 1;
    }
    *n = type == TOKEN_USER ? kept : *n;
    return copy;
}

static int add_token_piece(struct vocab *v, struct message m, int64_t id) {
    struct piece p;
    if (!read_piece(m, &p))
        return refuse_damaged(v);
    if (id >= v->rows)
        return err_set(v->e, ERR_MISMATCH,
                       "%s has more tokens than the model's %" PRId64
                       " ids: use the tokenizer of this model",
                       v->where.data, v->rows);
    v->score[id] = p.score;
    char *text = added_text(v, p.text, &p.n, (enum token_type)p.type);
    return text ? vocab_add(v, text, p.n, id, (enum token_type)p.type) : vocab_no_memory(v);
}

// Field 3 of the training settings: how pieces were made; 2 is by pairs.
static int check_training(struct vocab *v, struct message m) {
    struct field f;
    uint64_t kind = 1;
    while (next_field(&m, &f))
        kind = f.number == 3 && f.wire == 0 ? f.value : kind;
    return kind == 2
               ? 0
               : vocab_refuse(v, "pieces that were not made by pairs (model_type is not BPE)");
}

// Settings of the normaliser: 2 its table, 3 whether text begins with a blank.
static int check_normaliser(struct vocab *v, struct message m, bool *blank_first) {
    struct field f;
    while (next_field(&m, &f)) {
        if (f.number == 2 && f.bytes.at != f.bytes.end)
            return vocab_refuse(v, "a table for normalising text");
        if (f.number == 3 && f.wire == 0)
            *blank_first = f.value != 0;
    }
    return 0;
}

static int read_pieces(struct vocab *v, bool *blank_first) {
    const unsigned char *bytes = (const unsigned char *)v->pieces.data;
    struct message m = {bytes, bytes + v->pieces.len, false};
    struct field f;
    int64_t id = 0;
    bool trained = false;
    int rc = 0;
    while (!rc && next_field(&m, &f)) {
        if (f.wire != 2)
            continue;
        if (f.number == 1)
            rc = add_token_piece(v, f.bytes, id++);
        if (f.number == 2)
            rc = check_training(v, f.bytes);
        if (f.number == 3)
            rc = check_normaliser(v, f.bytes, blank_first);
        trained |= f.number == 2;
    }
    return rc || (!m.broken && id > 0 && trained) ? rc : refuse_damaged(v);
}

// Gives an id another text, as the JSON files do for tokens that were added after training; ids
// after the model's are left out.
static int replace_token(struct vocab *v, const char *text, size_t n, int64_t id,
                         enum token_type type) {
    if (id < 0 || id >= v->rows)
        return 0;
    v->text[id] = NULL;
    v->score[id] = ADDED_SCORE;
    return vocab_add(v, text, n, id, type);
}

// added_tokens.json: texts and ids.
static int add_plain(void *arg, const char *key, size_t n, const struct json *value) {
    struct vocab *v = arg;
    char *copy = arena_strndup(&v->arena, key, n);
    return copy ? replace_token(v, copy, n, json_int(value, -1), TOKEN_USER) : vocab_no_memory(v);
}

// added_tokens_decoder of tokenizer_config.json: ids and descriptions.
static int add_described(void *arg, const char *key, size_t n, const struct json *value) {
    struct vocab *v = arg;
    char *end, number[24];
    size_t length = 0;
    const char *text = json_str(json_get(value, "content"), &length);
    snprintf(number, sizeof number, "%.*s", n < 20 ? (int)n : 20, key);
    long long id = strtoll(number, &end, 10);
    if (*end || !text || !length)
        return vocab_refuse(v, "an added token without id or text");
    enum token_type type =
        vocab_added_type(text, length, json_bool(json_get(value, "special"), false));
    char *copy = added_text(v, text, &length, type);
    return copy ? replace_token(v, copy, length, id, type) : vocab_no_memory(v);
}

static int read_added(struct vocab *v) {
    struct hf_file extra = {0};
    const struct json *described =
        v->config.root ? hf_get(&v->config, "added_tokens_decoder") : NULL;
    int rc = hf_read(&extra, v->dir, "added_tokens.json", false, v->e);
    if (!rc && extra.root)
        rc = json_each(extra.root, add_plain, v);
    if (!rc && json_kind_of(described) == JSON_OBJECT)
        rc = json_each(described, add_described, v);
    hf_close(&extra);
    return rc;
}

int vocab_put_pieces(struct gguf_writer *w, struct vocab *v) {
    bool blank_first = true;
    for (int64_t i = 0; i < v->rows; i++)
        v->score[i] = PAD_SCORE;
    int rc = read_pieces(v, &blank_first);
    if (!rc)
        rc = read_added(v);
    if (!rc)
        rc = vocab_fill_gaps(v);
    if (rc)
        return rc;
    const struct json *stated = v->config.root ? hf_get(&v->config, "add_prefix_space") : NULL;
    bool says = json_kind_of(stated) == JSON_BOOL;
    gguf_put_str(w, "tokenizer.ggml.model", "llama", 5);
    gguf_put_str(w, "tokenizer.ggml.pre", "default", 7);
    if (says || !blank_first)
        gguf_put_bool(w, "tokenizer.ggml.add_space_prefix", json_bool(stated, blank_first));
    gguf_put_str_array(w, "tokenizer.ggml.tokens", v->text, v->length, (uint64_t)v->rows);
    gguf_put_array(w, "tokenizer.ggml.scores", GGUF_F32, v->score, (uint64_t)v->rows);
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, v->type, (uint64_t)v->rows);
    return 0;
}
