// See chat_forms.h. Each form prints the same text as the model's own template for system, user and
// assistant messages, white space included.
#include "engine/text/chat_forms.h"
#include <string.h>

#define RAISE(words) "{{ raise_exception('" words "') }}"
#define GENERATE(words) "{% if add_generation_prompt %}{{ '" words "' }}{% endif %}"
#define TURNS "{% for m in messages %}"
#define IF_USER "{% if m.role == 'user' %}"
#define IF_SYSTEM "{% if m.role == 'system' %}"
#define ELIF_USER "{% elif m.role == 'user' %}"
#define ELSE "{% else %}"
#define END "{% endif %}"
#define END_TURNS "{% endfor %}"

// The first message's words if it is the system's, none otherwise; `turns` are the others.
#define SPLIT_SYSTEM                                                                               \
    "{% set system = none %}{% set turns = messages %}"                                            \
    "{% if messages[0].role == 'system' %}"                                                        \
    "{% set system = messages[0].content %}{% set turns = messages[1:] %}{% endif %}"
#define NO_SYSTEM                                                                                  \
    "{% if messages[0].role == 'system' %}" RAISE("System role not supported") END                 \
        "{% set turns = messages %}"
#define ALTERNATING                                                                                \
    "{% for m in turns %}{% if m.role == 'system' or "                                             \
    "(m.role == 'user') != (loop.index0 % 2 == 0) %}" RAISE(                                       \
        "Conversation roles must alternate user/assistant/user/assistant/...") END

// --- <|im_start|>

#define IM_TURNS                                                                                   \
    TURNS "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}" END_TURNS
#define IM_GENERATE GENERATE("<|im_start|>assistant\\n")
#define CHATML IM_TURNS IM_GENERATE
#define IM_DEFAULT(words)                                                                          \
    "{% if messages[0].role != 'system' %}"                                                        \
    "{{ '<|im_start|>system\\n" words "<|im_end|>\\n' }}" END

// Reasoning is left out of the answers before the last question.
#define QWEN3                                                                                      \
    "{% set ns = namespace(question=messages | length) %}" TURNS                                   \
    "{% if m.role == 'user' and not (m.content.startswith('<tool_response>') and "                 \
    "m.content.endswith('</tool_response>')) %}"                                                   \
    "{% set ns.question = loop.index0 %}" END END_TURNS TURNS                                      \
    "{{ '<|im_start|>' + m.role + '\\n' }}"                                                        \
    "{% set parts = m.content.split('</think>') %}"                                                \
    "{% if m.role != 'assistant' %}{{ m.content }}" ELSE                                           \
    "{% set thought = '' %}{% set answer = m.content %}"                                           \
    "{% if parts | length > 1 %}"                                                                  \
    "{% set thought = parts[0].rstrip('\\n').split('<think>')[-1].strip('\\n') %}"                 \
    "{% set answer = parts[-1].lstrip('\\n') %}" END                                               \
    "{% if loop.index0 > ns.question and (loop.last or thought) %}"                                \
    "{{ '<think>\\n' + thought + '\\n</think>\\n\\n' + answer.lstrip('\\n') }}" ELSE               \
    "{{ answer }}" END END "{{ '<|im_end|>\\n' }}" END_TURNS IM_GENERATE
#define LFM2                                                                                       \
    "{{ bos_token }}{% for m in messages if m.role != 'system' or m.content %}"                    \
    "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}" END_TURNS IM_GENERATE

// --- Llama

#define LLAMA2                                                                                     \
    SPLIT_SYSTEM ALTERNATING IF_USER                                                               \
        "{% set words = m.content %}{% if loop.first and system is not none %}"                    \
        "{% set words = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + words %}" END                \
        "{{ bos_token + '[INST] ' + words | trim + ' [/INST]' }}" ELSE                             \
        "{{ ' ' + m.content | trim + ' ' + eos_token }}" END END_TURNS
#define HEADER(role) "'<|start_header_id|>' + " role " + '<|end_header_id|>\\n\\n'"
#define LLAMA3_TURNS                                                                               \
    "{{ " HEADER("m.role") " + m.content | trim + '<|eot_id|>' }}" END_TURNS                       \
                           "{% if add_generation_prompt %}{{ " HEADER(                             \
                               "'assistant'") " }}{% endif %}"
#define LLAMA3_DATED(date)                                                                         \
    SPLIT_SYSTEM "{{ bos_token + " HEADER(                                                         \
        "'system'") " + 'Cutting Knowledge Date: December 2023"                                    \
                    "\\nToday Date: ' + " date                                                     \
                    " + '\\n\\n' + (system or '') | trim + '<|eot_id|>' }}"                        \
                    "{% for m in turns %}" LLAMA3_TURNS

// --- Mistral

// The generations of its tokenizer differ in where spaces stand and in which turn carries the system
// prompt.
#define MISTRAL(open, close, answer)                                                               \
    ALTERNATING IF_USER "{{ '" open "' + m.content + '" close "' }}" ELSE "{{ " answer             \
                        " + eos_token }}" END END_TURNS
#define MISTRAL_SYSTEM(turn, open, close, answer)                                                  \
    SPLIT_SYSTEM "{{ bos_token }}" ALTERNATING IF_USER "{{ '" open                                 \
                 "' + (system + '\\n\\n' if loop." turn " and system is not none else '') + "      \
                 "m.content + '" close "' }}" ELSE "{{ " answer " + eos_token }}" END END_TURNS

// --- others

#define GEMMA                                                                                      \
    NO_SYSTEM                                                                                      \
    "{{ bos_token }}" ALTERNATING                                                                  \
    "{{ '<start_of_turn>' + ('user' if m.role == 'user' else 'model') + '\\n' + "                  \
    "m.content | trim + '<end_of_turn>\\n' }}" END_TURNS GENERATE("<start_of_turn>model\\n")
#define PHI3_TURNS                                                                                 \
    "{{ '<|' + m.role + '|>\\n' + m.content + '<|end|>\\n' }}" END_TURNS                           \
    "{{ '<|assistant|>\\n' if add_generation_prompt else eos_token }}"
#define ZEPHYR                                                                                     \
    TURNS "{{ '<|' + m.role + '|>\\n' + m.content + eos_token + '\\n' }}" END_TURNS GENERATE(      \
        "<|assistant|>\\n")
#define DEEPSEEK_V2                                                                                \
    "{{ bos_token }}" TURNS IF_SYSTEM "{{ m.content + '\\n\\n' }}" ELIF_USER                       \
    "{{ 'User: ' + m.content + '\\n\\n' }}" ELSE                                                   \
    "{{ 'Assistant: ' + m.content + eos_token }}" END END_TURNS GENERATE("Assistant:")
// The last system message goes in front of everything.
#define DEEPSEEK_R1                                                                                \
    "{% set ns = namespace(system='') %}" TURNS IF_SYSTEM                                          \
    "{% set ns.system = m.content %}" END END_TURNS "{{ bos_token + ns.system }}" TURNS IF_USER    \
    "{{ '<｜User｜>' + m.content }}{% elif m.role == 'assistant' %}"                             \
    "{{ '<｜Assistant｜>' + m.content.split('</think>')[-1] + '<｜end▁of▁sentence｜>' }}" END      \
        END_TURNS GENERATE("<｜Assistant｜><think>\\n</think>")
// Answers behind the last question keep their reasoning; the model asks for the next turn itself.
#define GLM4                                                                                       \
    "{% set ns = namespace(question=-1) %}" TURNS IF_USER                                          \
    "{% set ns.question = loop.index0 %}" END END_TURNS "{{ '[gMASK]<sop>' }}" TURNS               \
    "{% if m.role != 'assistant' %}{{ '<|' + m.role + '|>\\n' + m.content }}" ELSE                 \
    "{% set parts = m.content.split('</think>') %}{% set thought = '' %}"                          \
    "{% if parts | length > 1 and loop.index0 > ns.question %}"                                    \
    "{% set thought = parts[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}" END            \
    "{% set answer = parts[-1] | trim %}"                                                          \
    "{{ '<|assistant|>\\n<think>' + thought | trim + '</think>' + "                                \
    "('\\n' if answer else '') + answer }}" END END_TURNS GENERATE("<|assistant|>")
#define GRANITE                                                                                    \
    TURNS                                                                                          \
    "{{ '<|start_of_role|>' + m.role + '<|end_of_role|>' + m.content + "                           \
    "'<|end_of_text|>\\n' }}" END_TURNS GENERATE("<|start_of_role|>assistant<|end_of_role|>")
#define OPENCHAT                                                                                   \
    "{{ bos_token }}" TURNS                                                                        \
    "{{ 'GPT4 Correct ' + m.role.title() + ': ' + m.content + '<|end_of_turn|>' }}" END_TURNS      \
        GENERATE("GPT4 Correct Assistant:")
#define COMMAND_R_TURN(role, words)                                                                \
    "{{ '<|START_OF_TURN_TOKEN|><|" role "_TOKEN|>' + " words " + "                                \
    "'<|END_OF_TURN_TOKEN|>' }}"
#define COMMAND_R                                                                                  \
    SPLIT_SYSTEM "{{ bos_token }}{% if system is not none %}" COMMAND_R_TURN("SYSTEM", "system")   \
        END ALTERNATING IF_USER COMMAND_R_TURN("USER", "m.content | trim")                         \
            ELSE COMMAND_R_TURN("CHATBOT", "m.content | trim")                                     \
                END END_TURNS GENERATE("<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>")

const struct chat_form chat_forms[] = {
    {"chatml", CHATML},
    {"chatml-bos", "{{ bos_token }}" CHATML},
    {"qwen2", IM_DEFAULT("You are a helpful assistant.") CHATML},
    {"qwen2.5",
     IM_DEFAULT("You are Qwen, created by Alibaba Cloud. You are a helpful assistant.") CHATML},
    {"qwen3", QWEN3},
    {"lfm2", LFM2},
    {"llama2", LLAMA2},
    {"llama3", "{{ bos_token }}" TURNS LLAMA3_TURNS},
    {"llama3.1", LLAMA3_DATED("'26 Jul 2024'")},
    {"llama3.2", LLAMA3_DATED("strftime_now('%d %b %Y')")},
    {"mistral", NO_SYSTEM "{{ bos_token }}" MISTRAL("[INST] ", " [/INST]", "m.content")},
    {"mistral-v1", MISTRAL_SYSTEM("first", " [INST] ", " [/INST]", "' ' + m.content")},
    {"mistral-v3", MISTRAL_SYSTEM("last", "[INST] ", "[/INST]", "' ' + m.content | trim")},
    {"mistral-nemo", MISTRAL_SYSTEM("last", "[INST]", "[/INST]", "m.content")},
    {"gemma", GEMMA},
    {"phi3", TURNS PHI3_TURNS},
    {"phi3-small", "{{ bos_token }}" TURNS PHI3_TURNS},
    {"phi3.5", "{% for m in messages if m.role != 'system' or m.content %}" PHI3_TURNS},
    {"zephyr", ZEPHYR},
    {"deepseek-v2", DEEPSEEK_V2},
    {"deepseek-r1", DEEPSEEK_R1},
    {"glm4", GLM4},
    {"granite", GRANITE},
    {"openchat", OPENCHAT},
    {"command-r", COMMAND_R},
};
const size_t n_chat_forms = sizeof chat_forms / sizeof *chat_forms;

const struct chat_form *chat_form_named(const char *name) {
    for (size_t i = 0; i < n_chat_forms; i++)
        if (strcmp(chat_forms[i].name, name) == 0) return &chat_forms[i];
    return NULL;
}

const char *chat_form_names(void) {
    return "chatml, chatml-bos, qwen2, qwen2.5, qwen3, lfm2, llama2, llama3, llama3.1, llama3.2, "
           "mistral, mistral-v1, "
           "mistral-v3, mistral-nemo, gemma, phi3, phi3-small, phi3.5, zephyr, deepseek-v2, "
           "deepseek-r1, glm4, granite, "
           "openchat, command-r";
}
