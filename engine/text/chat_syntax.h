// How a model writes tool calls and thinking: what its chat template shows of it. Plain data.
#pragma once

enum tool_syntax {
    TOOL_SYNTAX_NONE,    // the template shows no tools
    TOOL_SYNTAX_JSON,    // the answer is {"name":..,"arguments":..}: a template without other marks
    TOOL_SYNTAX_HERMES,  // <tool_call>{"name":..,"arguments":..}</tool_call>
    TOOL_SYNTAX_XML,     // <tool_call><function=NAME><parameter=KEY>VALUE</parameter></function>
    TOOL_SYNTAX_LLAMA,   // {"name":..,"parameters":..}, perhaps after <|python_tag|>
    TOOL_SYNTAX_MISTRAL, // [TOOL_CALLS][{..}, {..}] or [TOOL_CALLS]NAME[ARGS]{..}
    TOOL_SYNTAX_LIST, // <|tool_call|>[{"name":..,"arguments":..}, ..], perhaps with <|/tool_call|> (Granite, Phi-4)
    // <tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>, perhaps with line ends (GLM-4.5)
    TOOL_SYNTAX_GLM,
    // Messages with channels, <|channel|>NAME<|message|>TEXT<|end|>, with or without tools: analysis is thinking,
    // commentary to=functions.NAME a call, final the answer (gpt-oss)
    TOOL_SYNTAX_HARMONY,
    TOOL_SYNTAX_OTHER, // calls are written in a form that Parley does not read
};
// The texts belong to the template. Zeroed: no tools, and it does not think.
struct chat_syntax {
    enum tool_syntax tools;
    const char *think_open, *think_close; // NULL: it does not think
};
