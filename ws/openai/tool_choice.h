// tool_choice of chat completions and of responses: a word, a named tool, or the tools that the answer may call. Any
// thread.
#pragma once
#include "ws/openai/failure.h"

#define OPENAI_TOOL_NAME_MAX 136
// The name that a tool has for the model, as the protocol writes it in a choice: borrowed from the tool, or in
// `full`. NULL: it names none.
typedef const char *(*openai_tool_name_fn)(const cJSON *tool, char full[OPENAI_TOOL_NAME_MAX]);
// As chat completions write it; `full` is not used.
const char *openai_chat_choice_name(const cJSON *tool, char full[OPENAI_TOOL_NAME_MAX]);

// Sets tool_choice, tool_name and allowed. 0, or E_* with *f set.
int openai_tool_choice_read(struct completion_request *c, const cJSON *choice,
                            openai_tool_name_fn name_of, struct completion_failure *f);
