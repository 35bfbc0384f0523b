// Bodies of Anthropic's POST /v1/messages. An accepted one is a conversation in neutral form, whose last
// message is not the assistant's, and in which results follow their calls; a refusal has a sentence.
#include "tests/fuzz/fuzz.h"
#include "ws/anthropic/messages_request.h"

// A request that was only read holds no model and no rendering.
const struct served_model *placement_keep(const struct served_model *m) {
    FUZZ_CHECK(!m);
    return m;
}
void placement_drop(const struct served_model *m) {
    FUZZ_CHECK(!m);
}
void engine_rendering_free(struct chat_rendering *r) {
    FUZZ_CHECK(!r);
}

static const char *string_of(const cJSON *object, const char *key) {
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
}

static int n_calls(const cJSON *message) {
    const cJSON *calls = cJSON_GetObjectItemCaseSensitive(message, "tool_calls"), *call;
    cJSON_ArrayForEach(call, calls) {
        const cJSON *f = cJSON_GetObjectItemCaseSensitive(call, "function");
        FUZZ_CHECK(string_of(call, "id") && string_of(f, "name"));
        FUZZ_CHECK(cJSON_IsObject(cJSON_GetObjectItemCaseSensitive(f, "arguments")));
    }
    return cJSON_GetArraySize(calls);
}

static void check_messages(const cJSON *messages) {
    const cJSON *m, *last = NULL;
    int open = 0; // calls without a result
    FUZZ_CHECK(cJSON_IsArray(messages) && messages->child);
    cJSON_ArrayForEach(m, messages) {
        const char *role = string_of(m, "role");
        FUZZ_CHECK(role);
        bool is_tool = strcmp(role, "tool") == 0, is_assistant = strcmp(role, "assistant") == 0;
        if (is_assistant) FUZZ_CHECK(open == 0);
        if (is_assistant) open = n_calls(m);
        if (is_tool) FUZZ_CHECK(open-- > 0 && string_of(m, "tool_call_id") && string_of(m, "name"));
        FUZZ_CHECK(string_of(m, "content") || (is_assistant && open > 0));
        last = m;
    }
    FUZZ_CHECK(open == 0 && strcmp(string_of(last, "role"), "assistant") != 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    for (int purpose = MESSAGES_ANSWER; purpose <= MESSAGES_COUNT; purpose++) {
        struct messages_request r;
        messages_request_read(&r, (enum messages_purpose)purpose, (const char *)data, size);
        if (r.in.failure.status) {
            FUZZ_CHECK(r.in.failure.status == 400 && *r.in.failure.message);
        } else {
            FUZZ_CHECK(r.model && *r.model);
            FUZZ_CHECK(!r.in.request->sampling == (purpose == MESSAGES_COUNT));
            FUZZ_CHECK((r.in.request->tool_choice == TOOLS_NAMED) ==
                       (r.in.request->tool_name != NULL));
            check_messages(r.in.request->messages);
        }
        messages_request_release(&r);
    }
    return 0;
}
