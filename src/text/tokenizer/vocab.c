// SPDX-License-Identifier: Apache-2.0
// Texts are copied into one block and un-mapped into a second one, so that everything after
// works on plain bytes. The rules about tokens that end generation are those that files in
// circulation need: named ids, known texts, and two exceptions.
#include "text/tokenizer/vocab.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "text/tokenizer/bpe.h"

static const char *const end_texts[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
};

// Metadata keys of single tokens that end generation, and the texts that stand in when a key is
// absent.
static const struct end_key {
    const char *key;
    const char *texts[6];
} end_keys[] = {
    {"tokenizer.ggml.eos_token_id", {NULL}},
    {"tokenizer.ggml.eot_token_id", {NULL}},
    {"tokenizer.ggml.eom_token_id", {NULL}},
    {"tokenizer.ggml.fim_pad_token_id", {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", NULL}},
    {"tokenizer.ggml.fim_rep_token_id",
     {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>", NULL}},
    {"tokenizer.ggml.fim_sep_token_id", {"<|file_sep|>", NULL}},
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

static int no_vocab_memory(struct err *e) {
    return err_set(e, ERR_MEMORY, "no memory for the vocabulary; free some memory");
}

// The byte that a code point of the byte map stands for, or -1. Printable Latin-1 stands for
// itself; the other 68 bytes are U+0100.. in order.
static int mapped_byte(uint32_t code) {
    if ((code >= 0x21 && code <= 0x7E) || (code >= 0xA1 && code <= 0xFF && code != 0xAD))
        return (int)code;
    if (code >= 0x100 && code <= 0x120)
        return (int)(code - 0x100);
    if (code >= 0x121 && code <= 0x142)
        return (int)(code - 0x121 + 0x7F);
    return code == 0x143 ? 0xAD : -1;
}

bool vocab_unmap(const char *s, size_t n, char *out, size_t *n_out) {
    bool whole = true;
    size_t used = 0;
    for (size_t at = 0; at < n;) {
        uint32_t code = 0;
        int length = utf8_decode(s + at, n - at, &code);
        int byte = length > 0 ? mapped_byte(code) : -1;
        size_t step = length > 0 ? (size_t)length : 1;
        if (byte >= 0) {
            out[used++] = (char)byte;
        } else {
            whole = false;
            memmove(out + used, s + at, step);
            used += step;
        }
        at += step;
    }
    *n_out = used;
    return whole;
}

static int find_array(const struct gguf *g, const char *key, const struct gguf_kv **out,
                      struct err *e) {
    *out = gguf_find(g, key);
    if (*out && (*out)->kind != GGUF_ARRAY)
        return err_set(e, ERR_FORMAT, "%s is not an array; the file needs a new conversion", key);
    return 0;
}

// Token texts, copied.
static int read_texts(struct vocab *v, const struct gguf *g, struct err *e) {
    const char *key = "tokenizer.ggml.tokens";
    const struct gguf_kv *kv;
    int rc = find_array(g, key, &kv, e);
    if (rc)
        return rc;
    if (!kv || kv->elem != GGUF_STRING || kv->count == 0 || kv->count >= INT32_MAX)
        return err_set(e, ERR_FORMAT,
                       "%s is no list of 1 to 2^31-2 texts; the file needs a new "
                       "conversion with its tokenizer",
                       key);
    v->count = (uint32_t)kv->count;
    v->tokens = arena_array(&v->arena, v->count, sizeof *v->tokens);
    size_t total = 0, n;
    const unsigned char *cursor = kv->bytes;
    for (uint32_t i = 0; i < v->count; i++) {
        gguf_array_str(&cursor, &n);
        if (n > INT32_MAX)
            return err_set(e, ERR_FORMAT, "token %u is a text of %zu bytes; the file is damaged", i,
                           n);
        total += n;
    }
    char *block = arena_alloc(&v->arena, total + 1);
    if (!v->tokens || !block)
        return no_vocab_memory(e);
    cursor = kv->bytes;
    for (uint32_t i = 0; i < v->count; i++) {
        const char *s = gguf_array_str(&cursor, &n);
        if (!utf8_valid(s, n))
            return err_set(e, ERR_FORMAT,
                           "the text of token %u in %s is not UTF-8; the file is "
                           "damaged or not a byte-level vocabulary",
                           i, key);
        memcpy(block, s, n);
        v->tokens[i] = (struct vocab_token){.text = block,
                                            .raw = block,
                                            .n_text = (uint32_t)n,
                                            .n_raw = (uint32_t)n,
                                            .type = VOCAB_NORMAL};
        block += n;
    }
    return 0;
}

static bool is_integer(int kind) {
    return kind == GGUF_U8 || kind == GGUF_I8 || kind == GGUF_U16 || kind == GGUF_I16 ||
           kind == GGUF_U32 || kind == GGUF_I32 || kind == GGUF_U64 || kind == GGUF_I64;
}

static int read_types(struct vocab *v, const struct gguf *g, struct err *e) {
    const char *key = "tokenizer.ggml.token_type";
    const struct gguf_kv *kv;
    int rc = find_array(g, key, &kv, e);
    if (rc || !kv)
        return rc;
    if (!is_integer(kv->elem) || kv->count != v->count)
        return err_set(e, ERR_FORMAT,
                       "%s has %llu entries for %u tokens, or not integers; the "
                       "file needs a new conversion",
                       key, (unsigned long long)kv->count, v->count);
    for (uint32_t i = 0; i < v->count; i++) {
        int64_t type = gguf_array_int(kv, i);
        if (type < 0 || type > VOCAB_BYTE)
            return err_set(e, ERR_FORMAT,
                           "token %u has type %lld in %s, not one of 1 to 6; the "
                           "file needs a new conversion",
                           i, (long long)type, key);
        v->tokens[i].type = type ? (uint8_t)type : VOCAB_NORMAL;
    }
    return 0;
}

// Published files have texts at several ids (three in Gemma 4's own). A text is looked up for the
// sake of marks, so one that is a mark has it before others, and among equals the lowest id: merged
// vocabularies are in the order of their merges, so that a later one has not been trained.
static int enter_texts(struct vocab *v, struct err *e) {
    for (int marks = 1; marks >= 0; marks--)
        for (uint32_t i = 0; i < v->count; i++) {
            const struct vocab_token *t = &v->tokens[i];
            bool mark = t->type == VOCAB_CONTROL || t->type == VOCAB_USER_DEFINED;
            if (t->n_text > 0 && mark == (marks == 1) &&
                map_insert(&v->by_text, t->text, t->n_text, i) < 0)
                return no_vocab_memory(e);
        }
    return 0;
}

// Tokens of one text end generation alike.
static void mark_same_ends(struct vocab *v) {
    for (uint32_t i = 0; i < v->count; i++) {
        struct vocab_token *t = &v->tokens[i];
        int32_t first = vocab_find(v, t->text, t->n_text);
        if (first >= 0 && v->tokens[first].eog)
            t->eog = true;
    }
}

// A named id; `otherwise` when absent, -1 when outside the vocabulary.
static int read_id(const struct vocab *v, const struct gguf *g, const char *key, int otherwise,
                   int32_t *id, struct err *e) {
    int64_t value = -1;
    int rc = gguf_get_int(g, key, INT64_MIN, INT64_MAX, otherwise, &value, e);
    *id = value >= 0 && value < v->count ? (int32_t)value : -1;
    return rc;
}

static int read_ends(struct vocab *v, const struct gguf *g, struct err *e) {
    for (size_t i = 0; i < COUNT(end_texts); i++) {
        int32_t id = vocab_find(v, end_texts[i], strlen(end_texts[i]));
        if (id < 0)
            continue;
        v->tokens[id].eog = true;
        if (v->tokens[id].type == VOCAB_NORMAL)
            v->tokens[id].type = VOCAB_CONTROL;
    }
    for (size_t i = 0; i < COUNT(end_keys); i++) {
        int32_t id;
        int rc = read_id(v, g, end_keys[i].key, -1, &id, e);
        if (rc)
            return rc;
        const char *const *texts = end_keys[i].texts;
        for (int k = 0; id < 0 && texts[k]; k++)
            id = vocab_find(v, texts[k], strlen(texts[k]));
        if (id >= 0)
            v->tokens[id].eog = true;
    }
    int32_t end = vocab_find(v, "<|end|>", 7);
    if (end >= 0 && vocab_find(v, "<|return|>", 10) >= 0 && vocab_find(v, "<|call|>", 8) >= 0) {
        // There it ends a message inside the turn (gpt-oss).
        v->tokens[end].eog = false;
        v->tokens[end].type = VOCAB_USER_DEFINED;
    }
    int32_t old = vocab_find(v, "</s>", 4);
    bool gemma =
        vocab_find(v, "<|tool_response>", 16) >= 0 || vocab_find(v, "<end_of_turn>", 13) >= 0;
    if (old >= 0 && old != v->eos && gemma)
        v->tokens[old].eog = false; // the end of struck text in HTML there (Gemma)
    return 0;
}

// The byte that the text of a byte token, <0xAB>, names; -1 for another text.
static int byte_of(const struct vocab_token *t) {
    unsigned value;
    char end, extra;
    char text[8] = {0};
    if (t->n_text != 6)
        return -1;
    memcpy(text, t->text, 6);
    return sscanf(text, "<0x%2X%c%c", &value, &end, &extra) == 2 && end == '>' ? (int)value : -1;
}

static bool says_unused(const struct vocab_token *t) {
    for (uint32_t i = 0; i + 6 <= t->n_text; i++) {
        if (memcmp(t->text + i, "unused", 6) == 0)
            return true;
    }
    return false;
}

// The bytes of a text with escaped blanks; returns how many.
static size_t unescape(const struct vocab_token *t, char *out) {
    size_t n = 0;
    for (uint32_t i = 0; i < t->n_text;) {
        bool blank = i + 3 <= t->n_text && memcmp(t->text + i, BPE_BLANK, 3) == 0;
        out[n++] = blank ? ' ' : t->text[i];
        i += blank ? 3 : 1;
    }
    return n;
}

// The bytes each token stands for.
static int read_bytes(struct vocab *v, enum vocab_kind kind, struct err *e) {
    size_t total = 0;
    for (uint32_t i = 0; i < v->count; i++)
        total += v->tokens[i].n_text;
    char *block = arena_alloc(&v->arena, total + 1);
    if (!block)
        return no_vocab_memory(e);
    for (uint32_t i = 0; i < v->count; i++) {
        struct vocab_token *t = &v->tokens[i];
        size_t n = 0;
        if (t->type == VOCAB_CONTROL && kind == VOCAB_BYTE_LEVEL && says_unused(t))
            t->type = VOCAB_UNUSED; // in others they are as other control tokens (Gemma)
        if (t->type == VOCAB_NORMAL && kind != VOCAB_BYTE_LEVEL) {
            n = unescape(t, block);
            t->mapped = n > 0;
        } else if (t->type == VOCAB_NORMAL) {
            t->mapped = vocab_unmap(t->text, t->n_text, block, &n) && n > 0;
        } else if (t->type == VOCAB_BYTE && byte_of(t) >= 0) {
            *block = (char)byte_of(t);
            n = 1;
        } else {
            continue;
        }
        t->raw = block;
        t->n_raw = (uint32_t)n;
        block += n;
    }
    return 0;
}

int vocab_read(struct vocab *v, const struct gguf *g, enum vocab_kind kind, struct err *e) {
    bool scores = kind == VOCAB_SCORES; // such files leave out what is usual for them
    v->bos = v->eos = v->unknown = -1;
    int rc = read_texts(v, g, e);
    if (!rc)
        rc = read_types(v, g, e);
    if (!rc)
        rc = enter_texts(v, e);
    if (!rc)
        rc = read_id(v, g, "tokenizer.ggml.bos_token_id", scores ? 1 : -1, &v->bos, e);
    if (!rc)
        rc = read_id(v, g, "tokenizer.ggml.eos_token_id", scores ? 2 : -1, &v->eos, e);
    if (!rc)
        rc = read_id(v, g, "tokenizer.ggml.unknown_token_id", scores ? 0 : -1, &v->unknown, e);
    if (!rc)
        rc = read_ends(v, g, e);
    if (!rc && v->eos >= 0)
        v->tokens[v->eos].eog = true;
    if (rc)
        return rc;
    mark_same_ends(v);
    return read_bytes(v, kind, e);
}

int32_t vocab_find(const struct vocab *v, const char *text, size_t n) {
    uint32_t id;
    return map_find(&v->by_text, text, n, &id) ? (int32_t)id : -1;
}

void vocab_fini(struct vocab *v) {
    map_fini(&v->by_text);
    arena_fini(&v->arena);
    *v = (struct vocab){0};
}
