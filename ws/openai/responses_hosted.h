// Hosted tools, which run on OpenAI's servers and not here (web_search ...), and the items of their earlier calls. A request
// that can be answered without them is served without them, and the log names each type once.
#pragma once
#include <stdbool.h>

// Each returns whether the type is a hosted one, and then notes it in the log. type: as the client wrote it. Any thread.
bool responses_leaves_out_tool(const char *type);
bool responses_leaves_out_item(const char *type);
