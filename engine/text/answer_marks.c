// The marks of each syntax. See answer_parser.h.
#include "engine/text/answer_parser.h"

void answer_marks(struct chat_syntax syntax, const char *out[ANSWER_MARKS_MAX]) {
    static const char *const of[][8] = {
        [TOOL_SYNTAX_HERMES] = {"<tool_call>", "</tool_call>"},
        [TOOL_SYNTAX_XML] = {"<tool_call>", "</tool_call>"},
        [TOOL_SYNTAX_GLM] = {"<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>",
                             "<arg_value>", "</arg_value>"},
        [TOOL_SYNTAX_LLAMA] = {"<|python_tag|>"},
        [TOOL_SYNTAX_MISTRAL] = {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"},
        [TOOL_SYNTAX_LIST] = {"<|tool_call|>", "<|/tool_call|>"},
        [TOOL_SYNTAX_HARMONY] = {"<|start|>", "<|channel|>", "<|constrain|>", "<|message|>",
                                 "<|end|>"}, // the other ends are no text: they end the answer
        [TOOL_SYNTAX_OTHER] = {NULL},
    };
    size_t n = 0;
    while (n < 8 && of[syntax.tools][n]) {
        out[n] = of[syntax.tools][n];
        n++;
    }
    // Harmony's marks of thinking are made of the others.
    if (syntax.think_close && syntax.tools != TOOL_SYNTAX_HARMONY) {
        out[n++] = syntax.think_open;
        out[n++] = syntax.think_close;
    }
    out[n] = NULL;
}
