// What OpenAI's servers run themselves and this server does not have: hosted tools (web_search ...), and the items of
// earlier calls of them. Where an answer can do without, they are left out, and the log names each type once.
#pragma once
#include <stdbool.h>

// Each returns whether the type is one of these, and notes it in the log. type: as the client wrote it. Any thread.
bool responses_leaves_out_tool(const char *type);
bool responses_leaves_out_item(const char *type);
