// See responses_hosted.h.
#include "ws/openai/responses_hosted.h"
#include "base/log.h"
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

struct hosted {
    const char *type;
    atomic_bool noted; // in the log
};

static struct hosted tools[] = {
    {.type = "web_search"},  {.type = "file_search"},
    {.type = "computer"},    {.type = "code_interpreter"},
    {.type = "mcp"},         {.type = "image_generation"},
    {.type = "shell"},       {.type = "local_shell"},
    {.type = "apply_patch"}, {.type = "tool_search"},
    {.type = NULL},
};

// The model does not need these items: the assistant's next message tells what they found.
static struct hosted items[] = {
    {.type = "web_search_call"},
    {.type = "file_search_call"},
    {.type = "code_interpreter_call"},
    {.type = "image_generation_call"},
    {.type = "mcp_list_tools"},
    {.type = "mcp_call"},
    {.type = "mcp_approval_request"},
    {.type = "mcp_approval_response"},
    {.type = "tool_search_call"},
    {.type = "tool_search_output"},
    {.type = NULL},
};

static bool note(struct hosted *h, const char *what) {
    if (!atomic_exchange(&h->noted, true))
        log_info("responses.left_out", "%s=%s why=\"this server has none\"", what, h->type);
    return true;
}

bool responses_leaves_out_tool(const char *type) {
    for (struct hosted *h = tools; h->type; h++) {
        size_t n = strlen(h->type);
        bool begins = strncmp(type, h->type, n) == 0; // web_search_preview_2025_03_11
        if (begins && (type[n] == '\0' || type[n] == '_')) return note(h, "tool");
    }
    return false;
}

bool responses_leaves_out_item(const char *type) {
    for (struct hosted *h = items; h->type; h++)
        if (strcmp(type, h->type) == 0) return note(h, "item");
    return false;
}
