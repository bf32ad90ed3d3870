// SPDX-License-Identifier: Apache-2.0
// The table of request fields; see fields.h. Fields that need more than a check of kind and range
// have a function in readers.c.
#include "serve/request/fields.h"

#include <stdio.h>
#include <string.h>

#define AT(member)  .offset = offsetof(struct params, member)
#define TEXT        ENDPOINT_TEXT
#define OPENAI      (ENDPOINT_CHAT | ENDPOINT_COMPLETIONS)
#define ANTHROPIC   (ENDPOINT_ANTHROPIC | ENDPOINT_COUNT)
#define RESPONSES   (ENDPOINT_RESPONSES | ENDPOINT_INPUT_TOKENS)
#define CHAT        ENDPOINT_CHAT
#define COMPLETIONS ENDPOINT_COMPLETIONS
#define MESSAGES    ENDPOINT_MESSAGES
#define ANY_LIMIT   9007199254740992.0 // 2^53: beyond it a double is no exact integer

static field_read_fn read_extra;

const struct field fields[] = {
    {"model",
     TEXT | MESSAGES | ENDPOINT_COUNT | ENDPOINT_INPUT_TOKENS | ENDPOINT_TOKENIZE |
         ENDPOINT_DETOKENIZE,
     FIELD_STRING, .read = field_read_model, .schema = "{'type':'string','maxLength':1024}",
     .help = "Any name is accepted and comes back in the answer."},
    {"messages", MESSAGES, FIELD_ARRAY, AT(messages),
     .schema = "{'type':'array','minItems':1,'items':@Message}",
     .help = "The conversation: objects with role (system, developer, user, assistant, tool) and "
             "content (a string or an array of text parts)."},
    {"thread", ANTHROPIC, FIELD_ANY, .read = field_read_thread, .schema = "{'type':'null'}",
     .help = "Refused: no conversations are kept, and the official SDK then sends all of it."},
    {"compaction", ANTHROPIC, FIELD_ANY, .read = field_read_compaction, .schema = "{'type':'null'}",
     .help = "Refused: conversations are not compacted here."},
    {"messages", ANTHROPIC, FIELD_ARRAY, AT(messages),
     .schema = "{'type':'array','minItems':1,'items':@Turn}",
     .help = "The conversation: objects with role (user, assistant, system) and content (a string "
             "or an array of blocks)."},
    {"system", ANTHROPIC, FIELD_ANY, .read = field_read_system,
     .schema = "{'oneOf':[{'type':'string'},{'type':'array','items':@Block}]}",
     .help = "The instructions: a string or an array of text blocks."},
    {"prompt", COMPLETIONS, FIELD_ANY, .read = field_read_prompt,
     .schema =
         "{'oneOf':[{'type':'string','minLength':1},{'type':'array','minItems':1,'maxItems':256,"
         "'items':{'type':'string','minLength':1}},{'type':'array','minItems':1,'items':"
         "@TokenId},{'type':'array','minItems':1,'maxItems':256,"
         "'items':{'type':'array','minItems':1,'items':@TokenId}}]}",
     .help = "A text, an array of texts, an array of token ids, or an array of those."},
    {"input", RESPONSES, FIELD_ANY, .read = field_read_input,
     .schema = "{'oneOf':[{'type':'string'},{'type':'array','minItems':1,'items':@Item}]}",
     .help = "The conversation: a string, or items such as message, reasoning, function_call and "
             "function_call_output. Kinds that are unknown are passed by."},
    {"instructions", RESPONSES, FIELD_STRING, .read = field_read_noted,
     .help = "The system's words, in front of the input."},
    {"previous_response_id", RESPONSES, FIELD_STRING, .read = field_read_noted,
     .help = "A kept response, which the input goes on from."},
    {"store", RESPONSES, FIELD_BOOL, .read = field_read_noted,
     .help = "false: the response is not kept. Otherwise the newest 512 are, in memory, 64 MiB of "
             "them."},
    {"include", RESPONSES, FIELD_ARRAY, .read = field_read_include, .schema = "{'type':'array'}",
     .help = "reasoning.encrypted_content: reasoning in a form to be given back unread; "
             "message.output_text.logprobs: the log-probability of each token. Others do "
             "nothing."},
    {"metadata", CHAT | RESPONSES, FIELD_OBJECT, .read = field_read_metadata,
     .schema = "{'type':'object','maxProperties':16,'propertyNames':{'maxLength':64},"
               "'additionalProperties':{'type':'string','maxLength':512}}",
     .help = "At most 16 pairs of a key (64 characters) and a text (512). Comes back in the answer "
             "of a response, and does nothing else."},
    {"user", OPENAI | RESPONSES, FIELD_STRING, .read = field_read_noted, .help = "Does nothing."},
    {"safety_identifier", CHAT | RESPONSES, FIELD_STRING, .hi = 128, .read = field_read_noted,
     .schema = "{'type':'string','maxLength':128}", .help = "Does nothing."},
    {"prompt_cache_key", CHAT | RESPONSES, FIELD_STRING, .read = field_read_noted,
     .help = "Does nothing: the cache goes by the prompt itself."},
    {"personality", RESPONSES, FIELD_STRING, .hi = 64, .read = field_read_noted,
     .schema = "{'type':'string','maxLength':64}", .help = "Does nothing."},
    {"truncation", RESPONSES, FIELD_STRING, .read = field_read_noted,
     .help = "Comes back in the answer: an input that is too long is refused, never cut."},
    {"reasoning", RESPONSES, FIELD_OBJECT, .read = field_read_reasoning,
     .schema =
         "{'type':'object','properties':{'effort':{'type':['string','null'],'maxLength':31},"
         "'summary':{'type':['string','null']},'generate_summary':{'type':['string','null']}}}",
     .help = "effort: as reasoning_effort of chat completions. summary, or generate_summary: any "
             "word has reasoning sent as its summary."},
    {"text", RESPONSES, FIELD_OBJECT, .read = field_read_text_options,
     .schema = "{'type':'object','properties':{'format':{'type':['object','null'],'properties':{"
               "'type':{'enum':['text','json_object','json_schema']}}},'verbosity':{'type':["
               "'string','null']}}}",
     .help = "format: the form of the reply: text, json_object, or json_schema with schema."},
    {"background", RESPONSES, FIELD_BOOL, .read = field_read_background,
     .schema = "{'const':false}",
     .help = "Refused when true: answers are made while the client waits."},
    {"conversation", RESPONSES, FIELD_ANY, .read = field_read_unkept, .schema = "{'type':'null'}",
     .help = "Refused: no conversations are kept by themselves."},
    {"prompt", RESPONSES, FIELD_ANY, .read = field_read_unkept, .schema = "{'type':'null'}",
     .help = "Refused: no prompts are kept here."},
    {"stream", TEXT, FIELD_BOOL, AT(stream),
     .help = "Send the answer as server-sent events while it is made."},
    {"stream_options", OPENAI, FIELD_OBJECT, .read = field_read_stream_options,
     .schema = "{'type':'object','properties':{'include_usage':{'type':['boolean','null']}}}",
     .help = "include_usage: a last chunk with the token counts."},
    {"n_predict", OPENAI, FIELD_INT, -1, ANY_LIMIT, AT(max_tokens),
     .help = "llama-server's name for max_tokens; -1 is no limit."},
    {"max_output_tokens", OPENAI | RESPONSES, FIELD_INT, -1, ANY_LIMIT, AT(max_tokens),
     .help = "Another name for max_tokens."},
    {"max_tokens", TEXT, FIELD_INT, -1, ANY_LIMIT, AT(max_tokens),
     .help = "New tokens at most; never more than the context has room for. Without it a chat may "
             "fill the context, and a completion ends after 16."},
    {"max_completion_tokens", OPENAI, FIELD_INT, -1, ANY_LIMIT, AT(max_tokens),
     .help = "The newer name of max_tokens; it counts where both are given."},
    {"prompt_cache_options", RESPONSES, FIELD_OBJECT, .read = field_read_cache_options,
     .schema = "{'type':'object','properties':{'prewarm':{'type':['boolean','null']}}}",
     .help = "prewarm: the prompt is read, so that the cache has it, and nothing is answered."},
    {"temperature", TEXT, FIELD_NUM, 0, 100, AT(sample.temperature),
     .help = "0 takes the likeliest token always."},
    {"top_p", TEXT, FIELD_NUM, 0, 1, .read = field_read_top_p,
     .help = "Sample among the likeliest tokens that together have this probability."},
    {"top_k", TEXT, FIELD_INT, -1, INT32_MAX, .read = field_read_top_k,
     .help = "Sample among this many of the likeliest tokens; 0 or -1: all."},
    {"min_p", TEXT, FIELD_NUM, 0, 1, AT(sample.min_p),
     .help = "Leave out tokens less likely than this share of the likeliest one."},
    {"presence_penalty", TEXT, FIELD_NUM, -100, 100, AT(sample.presence),
     .help = "Subtracted from the logit of tokens that the penalty window holds."},
    {"frequency_penalty", TEXT, FIELD_NUM, -100, 100, AT(sample.frequency),
     .help = "Subtracted from the logit of tokens once per occurrence in the penalty window."},
    {"rep_pen", TEXT, FIELD_NUM, 0.01, 100, AT(sample.repeat),
     .help = "Another name for repetition_penalty."},
    {"repeat_penalty", TEXT, FIELD_NUM, 0.01, 100, AT(sample.repeat),
     .help = "llama-server's name for repetition_penalty."},
    {"repetition_penalty", TEXT, FIELD_NUM, 0.01, 100, AT(sample.repeat),
     .help = "Divides positive and multiplies negative logits of tokens in the penalty window."},
    {"rep_window", TEXT, FIELD_INT, 0, SAMPLER_MAX_WINDOW, AT(sample.window),
     .help = "Tokens, prompt included, that the three penalties look back at."},
    {"repeat_last_n", TEXT, FIELD_INT, 0, SAMPLER_MAX_WINDOW, AT(sample.window),
     .help = "llama-server's name for rep_window."},
    {"seed", TEXT, FIELD_ANY, .read = field_read_seed, .schema = "{'type':'integer'}",
     .help = "The same seed and request give the same tokens; absent or -1: a random one."},
    {"stop_sequences", TEXT, FIELD_ANY, .read = field_read_stop,
     .schema = "{'oneOf':[{'type':'string'},{'type':'array','items':{'type':'string'}}]}",
     .help = "More stop strings, as in stop."},
    {"stop", TEXT, FIELD_ANY, .read = field_read_stop,
     .schema = "{'oneOf':[{'type':'string'},{'type':'array','items':{'type':'string'}}]}",
     .help = "The text ends before the first of these strings, at most 256."},
    {"stop_token_ids", TEXT, FIELD_ARRAY, .read = field_read_stop_ids,
     .schema = "{'type':'array','maxItems':1024,'items':@TokenId}",
     .help = "The reply ends with the first of these tokens, whose text is left out."},
    {"no_stop_trim", TEXT, FIELD_BOOL, AT(keeps_stop),
     .help = "SGLang's name for include_stop_str_in_output."},
    {"include_stop_str_in_output", TEXT, FIELD_BOOL, AT(keeps_stop),
     .help = "The text of the stop string or stop token that ended the reply is part of it."},
    {"min_new_tokens", TEXT, FIELD_INT, 0, ANY_LIMIT, AT(min_tokens),
     .help = "Another name for min_tokens."},
    {"min_tokens", TEXT, FIELD_INT, 0, ANY_LIMIT, AT(min_tokens),
     .help = "New tokens at least: before that no token of an end or of stop_token_ids is chosen, "
             "and no string of stop counts. Where the form of the reply allows nothing but its "
             "end, or a single call ends it, it ends."},
    {"logit_bias", TEXT, FIELD_ANY, .read = field_read_logit_bias,
     .schema = "{'oneOf':[{'type':'object','propertyNames':{'pattern':'^(0|[1-9][0-9]{0,8})$'},'"
               "additionalProperties':@Bias},{'type':'array','items':{'"
               "type':'array','prefixItems':[{'oneOf':[@TokenId,{'type':"
               "'string','minLength':1,'maxLength':1024}]},@Bias],"
               "'minItems':2,'maxItems':2}}]}",
     .help = "Added to logits, -100 to 100; false forbids the token. Token ids as keys, or "
             "llama-server's pairs of an id or a text, whose tokens are meant, and a bias."},
    {"n", OPENAI, FIELD_INT, 1, PARAMS_MAX_CHOICES, .read = field_read_n,
     .help = "Answers to one prompt, at most the server's slots."},
    {"best_of", COMPLETIONS, FIELD_INT, 1, PARAMS_MAX_CHOICES, .read = field_read_best_of,
     .help = "Accepted when it equals n."},
    {"ignore_eos", TEXT, FIELD_BOOL, AT(ignore_eos),
     .help = "Do not stop at end-of-generation tokens."},
    {"logprobs", CHAT, FIELD_BOOL, AT(logprobs), .help = "Send the log-probability of each token."},
    {"top_logprobs", CHAT, FIELD_INT, 0, PARAMS_MAX_LOGPROBS, AT(top_logprobs),
     .help = "Number of the likeliest tokens to list for each; needs logprobs."},
    {"top_logprobs", RESPONSES, FIELD_INT, 0, PARAMS_MAX_LOGPROBS, AT(top_logprobs),
     .help = "Number of the likeliest tokens to list for each, where include requests them."},
    {"logprobs", COMPLETIONS, FIELD_INT, 0, PARAMS_MAX_LOGPROBS, AT(top_logprobs),
     .help = "Log-probabilities of each token and of this many of the likeliest."},
    {"echo", COMPLETIONS, FIELD_BOOL, AT(echo),
     .help = "The prompt comes before the text; with logprobs, those of its tokens too."},
    {"suffix", COMPLETIONS, FIELD_STRING, .read = field_read_suffix,
     .schema = "{'type':'string','maxLength':0}",
     .help = "Refused unless empty: this model does not fill in the middle."},
    {"response_format", OPENAI, FIELD_OBJECT, .read = field_read_response_format,
     .schema = "{'type':'object','required':['type'],'properties':{'type':{'enum':['text',"
               "'json_object','json_schema']},'json_schema':{'type':['object','null']}}}",
     .help = "The form of the reply: text, json_object, or json_schema with json_schema.schema. A "
             "block of reasoning before it stays free."},
    {"tools", RESPONSES, FIELD_ARRAY, .read = field_read_tools,
     .schema = "{'type':'array','maxItems':1024,'items':{'type':'object'}}",
     .help = "Tools that the reply may call: type function with name, description and parameters "
             "next to it, custom, or namespace, which has tools. Other types are passed by."},
    {"tools", MESSAGES, FIELD_ARRAY, .read = field_read_tools,
     .schema = "{'type':'array','maxItems':1024,'items':{'type':'object'}}",
     .help = "Tools that the reply may call: type function with name, description and parameters "
             "(a JSON schema), or custom, whose input is free text. Other types are passed by."},
    {"tool_choice", MESSAGES | RESPONSES, FIELD_ANY, .read = field_read_tool_choice,
     .schema = "{'oneOf':[{'enum':['none','auto','required']},{'type':'object'}]}",
     .help = "none: the tools are left out; auto: the model decides; required: it calls one; an "
             "object names the one to call, or those allowed (allowed_tools)."},
    {"parallel_tool_calls", MESSAGES | RESPONSES, FIELD_BOOL, .read = field_read_parallel,
     .help = "false: the reply ends with its first call."},
    {"tools", ANTHROPIC, FIELD_ARRAY, .read = field_read_tools,
     .schema = "{'type':'array','items':{'type':'object'}}",
     .help = "Tools with a name and an input_schema; those of Anthropic's own servers are passed "
             "over."},
    {"tool_choice", ANTHROPIC, FIELD_OBJECT, .read = field_read_anthropic_choice,
     .schema =
         "{'type':'object','required':['type'],'properties':{'type':{'enum':['auto','any',"
         "'tool','none']},'name':{'type':['string','null']},'disable_parallel_tool_use':{'type':"
         "['boolean','null']}}}",
     .help = "Whether tools may be called, and which. none: they are left out."},
    {"modalities", CHAT, FIELD_ARRAY, .read = field_read_modalities,
     .schema = "{'type':'array','items':{'const':'text'}}",
     .help = "Refused where it requests more than text."},
    {"functions", CHAT, FIELD_ARRAY, .read = field_read_functions,
     .schema = "{'type':'array','maxItems':1024,'items':{'type':'object','required':['name'],"
               "'properties':{'name':{'type':'string'}}}}",
     .help = "The older form of tools, not together with them; the answer then has its call in "
             "function_call, one at most."},
    {"function_call", CHAT, FIELD_ANY, .read = field_read_function_call,
     .schema = "{'oneOf':[{'enum':['none','auto']},{'type':'object','required':['name'],"
               "'properties':{'name':{'type':'string'}}}]}",
     .help = "Whether functions may be called, and which: the older form of tool_choice."},
    {"documents", MESSAGES, FIELD_ARRAY, AT(documents), .schema = "{'type':'array'}",
     .help = "For templates that read documents."},
    {"add_generation_prompt", MESSAGES, FIELD_BOOL, .read = field_read_generation_prompt,
     .help = "false: the prompt does not open the assistant's turn."},
    {"continue_final_message", MESSAGES, FIELD_BOOL, .read = field_read_continue_final,
     .help = "true: the last message, which must be the assistant's words, goes on; false: it is "
             "whole, and another begins. Not said: it goes on if it is the assistant's."},
    {"chat_template_kwargs", MESSAGES | RESPONSES, FIELD_OBJECT, AT(kwargs),
     .help = "Variables for the template, such as enable_thinking."},
    {"reasoning_effort", MESSAGES, FIELD_STRING, .read = field_read_effort,
     .schema = "{'type':'string','maxLength':31}",
     .help = "none switches thinking off, any other word on: low and medium end it early, "
             "others leave room for an answer; the template may read the word."},
    {"thinking", MESSAGES, FIELD_OBJECT, .read = field_read_thinking,
     .schema = "{'type':'object','properties':{'type':{'type':['string','null']},"
               "'budget_tokens':{'type':['integer','null'],'minimum':0}}}",
     .help = "type: enabled or disabled; budget_tokens: max tokens of thinking."},
    {"thinking_token_budget", CHAT, FIELD_ANY, .read = field_read_budget,
     .schema = "{'type':'integer','minimum':0}", .help = "vLLM's name for thinking.budget_tokens."},
    {"thinking", ANTHROPIC, FIELD_OBJECT, .read = field_read_anthropic_thinking,
     .schema = "{'type':'object','required':['type'],'properties':{'type':{'type':'string'},"
               "'budget_tokens':{'type':['integer','null'],'minimum':0},'display':{'enum':["
               "'summarized','omitted','updates',null]}}}",
     .help = "type: enabled, disabled or adaptive; budget_tokens: max tokens of thinking; "
             "display: summarized, or omitted, which sends its text in signatures only. Without "
             "this field thinking is off."},
    {"output_config", ANTHROPIC, FIELD_OBJECT, .read = field_read_output_config,
     .schema = "{'type':'object','properties':{'effort':{'type':['string','null'],'maxLength':31},"
               "'format':{'type':['object','null']}}}",
     .help = "effort: how much the model is to think, as reasoning_effort of chats. format: the "
             "form of the reply, json_schema with schema."},
    {"output_format", ANTHROPIC, FIELD_OBJECT, .read = field_read_response_format,
     .schema = "{'type':'object','required':['type']}",
     .help = "output_config.format, as older clients name it."},
    {"enable_thinking", MESSAGES | RESPONSES, FIELD_BOOL, .read = field_read_enable_thinking,
     .help = "For templates that can switch thinking on and off."},
    {"grammar", OPENAI, FIELD_STRING, .read = field_read_grammar,
     .help = "llama-server's name for guided_grammar."},
    {"json_schema", OPENAI, FIELD_ANY, .read = field_read_schema,
     .schema = "{'type':['object','boolean','string']}",
     .help = "llama-server's name for guided_json."},
    {"structured_outputs", OPENAI, FIELD_OBJECT, .read = field_read_structured,
     .schema = "{'type':'object','properties':{'json':{'type':['object','boolean','string']},"
               "'regex':{'type':'string'},'choice':{'type':'array','items':{'type':'string'}},"
               "'grammar':{'type':'string'},'json_object':{'type':'boolean'}}}",
     .help = "vLLM's form of the guided fields: one of json, regex, choice, grammar, json_object."},
    {"guided_json", OPENAI, FIELD_ANY, .read = field_read_schema,
     .schema = "{'type':['object','boolean','string']}",
     .help = "The reply is JSON that satisfies this schema."},
    {"guided_regex", OPENAI, FIELD_STRING, .read = field_read_regex,
     .help = "The whole reply matches this regular expression."},
    {"guided_grammar", OPENAI, FIELD_STRING, .read = field_read_grammar,
     .help = "The reply is what the rule root of this GBNF says."},
    {"guided_choice", OPENAI, FIELD_ARRAY, .read = field_read_choice,
     .schema = "{'type':'array','items':{'type':'string'}}",
     .help = "The reply is one of these texts. An empty text or list in this field and those above "
             "says nothing."},
    {"content", ENDPOINT_TOKENIZE, FIELD_ANY, .read = field_read_text,
     .schema = "{'type':'string'}", .help = "The text."},
    {"prompt", ENDPOINT_TOKENIZE, FIELD_ANY, .read = field_read_text, .schema = "{'type':'string'}",
     .help = "vLLM's name for content."},
    {"add_special", ENDPOINT_TOKENIZE, FIELD_BOOL, AT(add_special),
     .help = "Put the begin-of-text token first where the model requires one."},
    {"add_special_tokens", ENDPOINT_TOKENIZE, FIELD_BOOL, AT(add_special),
     .help = "The same, as vLLM spells it."},
    {"parse_special", ENDPOINT_TOKENIZE, FIELD_BOOL, .read = field_read_parse_special,
     .help = "false: control tokens in the text are text."},
    {"with_pieces", ENDPOINT_TOKENIZE, FIELD_BOOL, AT(with_pieces),
     .help = "Send the text of each token, too."},
    {"tokens", ENDPOINT_DETOKENIZE, FIELD_ARRAY, AT(tokens),
     .schema = "{'type':'array','items':@TokenId}", .help = "Token ids."},
    {"session_id", TEXT, FIELD_STRING, .read = field_read_session,
     .schema = "{'type':'string','maxLength':256}",
     .help =
         "A name of the conversation: with --prefill-adapt its prompts are compressed as far as "
         "guesses about its earlier answers suggest."},
    {"coppice", TEXT, FIELD_OBJECT, .read = read_extra, .schema = "@CoppiceExtra",
     .help = "This server's own: see the fields of CoppiceExtra."},
};
const size_t fields_count = sizeof fields / sizeof fields[0];

const struct field fields_extra[] = {
    {"logit_hash", TEXT, FIELD_BOOL, AT(logit_hash),
     .help = "Send a hash over the logits that decided, one for each choice, in usage."},
    {"token_ids", TEXT, FIELD_BOOL, AT(token_ids), .help = "Send the ids of the new tokens."},
    {"trees", TEXT, FIELD_BOOL, AT(trees),
     .help = "Keep the tree of guesses of each step for GET /v1/streams/{id}/trees."},
    {"speculate", TEXT, FIELD_STRING, .read = field_read_speculate,
     .schema = "{'enum':['auto','tree','chain','lookup','off']}",
     .help = "auto, tree, chain, lookup or off: how tokens are guessed. It changes no token."},
};
const size_t fields_extra_count = sizeof fields_extra / sizeof fields_extra[0];

static bool read_extra(const struct reading *r) {
    if (fields_read(r->p, fields_extra, fields_extra_count, r->v, ENDPOINT_TEXT, r->l, r->x))
        return true;
    char param[sizeof r->x->param];
    snprintf(param, sizeof param, "%s.%.60s", r->f->name, r->x->param);
    memcpy(r->x->param, param, sizeof param);
    return false;
}
