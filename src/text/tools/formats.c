// SPDX-License-Identifier: Apache-2.0
// See formats.h. The formats are those of the families' published chat templates and tokenizers.
#include "text/tools/formats.h"

#include <string.h>

// U+FF5C and U+2581 in DeepSeek's marks.
#define BAR    "\xef\xbd\x9c"
#define UND    "\xe2\x96\x81"
#define DS(x)  "<" BAR x BAR ">"
#define DS_SEP DS("tool" UND "sep")

static const char *pick_kimi(const char *head, size_t *n) {
    size_t at = *n;
    while (at > 0 && head[at - 1] >= '0' && head[at - 1] <= '9')
        at--;
    if (at > 0 && at < *n && head[at - 1] == ':')
        *n = at - 1;
    return head;
}

static const char *pick_mistral(const char *head, size_t *n) {
    const char *id = tool_formats[TOOLS_MISTRAL].id, *at = memmem(head, *n, id, strlen(id));
    if (at)
        *n = (size_t)(at - head);
    return head;
}

static const char *pick_harmony(const char *head, size_t *n) {
    static const char to[] = HARMONY_TO;
    const char *at = memmem(head, *n, to, sizeof to - 1), *end = head + *n;
    if (!at)
        return NULL;
    at += sizeof to - 1;
    for (*n = 0; at + *n < end && at[*n] != ' ' && at[*n] != '<'; ++*n)
        continue;
    return at;
}

const char *const harmony_ends[HARMONY_ENDS] = {"<|call|>", "<|end|>", "<|return|>"};

const struct tool_format tool_formats[TOOLS_FAMILIES] = {
    [TOOLS_HERMES] = {.name = "hermes",
                      .open = "<tool_call>",
                      .args = TOOL_ARGS_NAMED,
                      .arguments = "arguments",
                      .close = "</tool_call>",
                      .speaks = {"<tool_call>"}},
    [TOOLS_QWEN] = {.name = "qwen",
                    .section = "<tool_call>",
                    .section_end = "</tool_call>",
                    .own_section = true,
                    .open = "<function=",
                    .name_end = {">"},
                    .args = TOOL_ARGS_TAGGED,
                    .key = "<parameter=",
                    .key_end = ">",
                    .value_end = "</parameter>",
                    .lines = true,
                    .close = "</function>",
                    .speaks = {"<function=", "<parameter="}},
    [TOOLS_LAGUNA] = {.name = "laguna",
                      .open = "<tool_call>",
                      .name_end = {"<arg_key>", "</tool_call>"},
                      .keep_end = true,
                      .args = TOOL_ARGS_TAGGED,
                      .key = "<arg_key>",
                      .key_end = "</arg_key>",
                      .value = "<arg_value>",
                      .value_end = "</arg_value>",
                      .close = "</tool_call>",
                      .speaks = {"<arg_key>", "<arg_value>"}},
    [TOOLS_LLAMA] = {.name = "llama",
                     .section = "<|python_tag|>",
                     .open = "",
                     .between = ";",
                     .args = TOOL_ARGS_NAMED,
                     .arguments = "parameters",
                     .single = true,
                     .close = "",
                     .first_only = true,
                     .speaks = {"<|start_header_id|>", "ipython"}},
    [TOOLS_GEMMA] = {.name = "gemma",
                     .open = "<|tool_call>",
                     .prefix = "call:",
                     .prefix_needed = true,
                     .name_end = {"{"},
                     .keep_end = true,
                     .args = TOOL_ARGS_GEMMA,
                     .quote = "<|\"|>",
                     .adjacent = true,
                     .close = "<tool_call|>",
                     .speaks = {"<|tool_call>", "call:"}},
    [TOOLS_HARMONY] = {.name = "harmony",
                       .open = TOOL_FRAME,
                       .name_end = {"<|message|>"},
                       .pick = pick_harmony,
                       .args = TOOL_ARGS_JSON,
                       .single = true,
                       .close = TOOL_FRAME_END,
                       .speaks = {"<|channel|>", "<|message|>"}},
    [TOOLS_DEEPSEEK] = {.name = "deepseek",
                        .section = DS("tool" UND "calls" UND "begin"),
                        .section_end = DS("tool" UND "calls" UND "end"),
                        .open = DS("tool" UND "call" UND "begin"),
                        .name_end = {DS_SEP},
                        .args = TOOL_ARGS_JSON,
                        .close = DS("tool" UND "call" UND "end"),
                        .speaks = {DS_SEP}},
    [TOOLS_DEEPSEEK_V3] = {.name = "deepseek-v3",
                           .section = DS("tool" UND "calls" UND "begin"),
                           .section_end = DS("tool" UND "calls" UND "end"),
                           .open = DS("tool" UND "call" UND "begin"),
                           .prefix = "function" DS_SEP,
                           .prefix_needed = true,
                           .name_end = {"\n```json\n"},
                           .args = TOOL_ARGS_JSON,
                           .before_close = "\n",
                           .close = "```" DS("tool" UND "call" UND "end"),
                           .speaks = {DS_SEP, "```json"}},
    [TOOLS_KIMI] = {.name = "kimi",
                    .section = "<|tool_calls_section_begin|>",
                    .section_end = "<|tool_calls_section_end|>",
                    .open = "<|tool_call_begin|>",
                    .prefix = "functions.",
                    .name_end = {"<|tool_call_argument_begin|>"},
                    .pick = pick_kimi,
                    .args = TOOL_ARGS_JSON,
                    .close = "<|tool_call_end|>",
                    .speaks = {"<|tool_call_argument_begin|>"}},
    [TOOLS_MISTRAL] = {.name = "mistral",
                       .open = "[TOOL_CALLS]",
                       .name_end = {"[ARGS]"},
                       .pick = pick_mistral,
                       .id = "[CALL_ID]",
                       .adjacent = true,
                       .args = TOOL_ARGS_JSON,
                       .close = "",
                       .speaks = {"[TOOL_CALLS]", "[ARGS]"}},
    [TOOLS_MISTRAL_LIST] = {.name = "mistral-list",
                            .section = "[TOOL_CALLS]",
                            .section_end = "]",
                            .open = "[TOOL_CALLS]",
                            .list = "[",
                            .between = ",",
                            .args = TOOL_ARGS_NAMED,
                            .arguments = "arguments",
                            .own_section = true,
                            .close = "",
                            .speaks = {"[TOOL_CALLS]"}},
};

enum tool_family tool_family_of_template(const char *text, size_t n) {
    // The more a family has of its own, the earlier it is tried.
    static const enum tool_family order[] = {
        TOOLS_HARMONY, TOOLS_GEMMA, TOOLS_KIMI,    TOOLS_DEEPSEEK_V3,  TOOLS_DEEPSEEK,
        TOOLS_LAGUNA,  TOOLS_QWEN,  TOOLS_MISTRAL, TOOLS_MISTRAL_LIST, TOOLS_LLAMA,
    };
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        const struct tool_format *f = &tool_formats[order[i]];
        bool all = true;
        for (int k = 0; k < 3 && f->speaks[k]; k++)
            all &= memmem(text, n, f->speaks[k], strlen(f->speaks[k])) != NULL;
        if (all)
            return order[i];
    }
    return TOOLS_HERMES;
}

enum tool_family tool_family_of_name(const char *name) {
    int f = 0;
    while (f < TOOLS_FAMILIES && strcmp(name, tool_formats[f].name) != 0)
        f++;
    return (enum tool_family)f;
}

bool tool_family_mark(enum tool_family f, const char *text, size_t n) {
    const struct tool_format *r = &tool_formats[f];
    const char *const of[] = {r->section,     r->section_end, r->open,    r->prefix,
                              r->name_end[0], r->key,         r->key_end, r->value,
                              r->value_end,   r->close,       r->quote,   r->id};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (of[i] && n >= 3 && memmem(of[i], strlen(of[i]), text, n))
            return true;
    return false;
}
