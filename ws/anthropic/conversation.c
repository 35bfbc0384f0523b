// Reading system and messages. See messages_request.h.
//
// Anthropic's content blocks become messages of chat templates. One message of a user may become
// several: a tool_result block is a message of its own, of the role "tool". Texts of a user's
// blocks, and of user messages that follow each other, are joined by line breaks; those of an
// assistant are pieces of one sampled text and are joined as they are. The thinking of an assistant
// is its reasoning_content, whichever server signed it: clients change servers within a conversation.
#include "base/json_form.h"
#include "ws/anthropic/messages_request.h"
#include <stdio.h>
#include <string.h>

#define CALLS_MAX 1024 // of one answer; every result is looked up among them

struct reading {
    struct messages_request *r;
    int message, block; // the place that is read, for refusals; block -1: a content of text
    struct buf text;    // of the message so far
    bool has_text;
    struct buf thinking;
    cJSON *calls; // the previous answer's, which wait for results; borrowed. NULL: none
    int n_calls, n_answered;
};

// "messages.3.content.1", of the block that is read.
static const char *path_of(const struct reading *rd, char out[64]) {
    if (rd->block < 0)
        snprintf(out, 64, "messages.%d.content", rd->message);
    else
        snprintf(out, 64, "messages.%d.content.%d", rd->message, rd->block);
    return out;
}

#define REFUSE_BLOCK(rd, fmt, ...)                                                                 \
    messages_refuse((rd)->r, "%s" fmt, path_of(rd, (char[64]){0}), __VA_ARGS__)

// --- texts ---

// Refuses a block that is not text.
static bool refuse_type(struct reading *rd, const char *path, const char *type) {
    static const char *const media[] = {"image", "document", "search_result", "container_upload"};
    if (!type) return messages_refuse(rd->r, "%s.type: Field required", path);
    for (int i = 0; i < 4; i++)
        if (strcmp(type, media[i]) == 0)
            return messages_refuse(
                rd->r, "%s.type: '%s' is not served here: the models of this server read text only",
                path, type);
    return messages_refuse(rd->r, "%s.type: '%.64s' is not served here", path, type);
}

// A string, or an array of text blocks, joined by line breaks.
static bool read_text(struct reading *rd, const cJSON *content, const char *path, struct buf *out) {
    const cJSON *part;
    int i = 0;
    if (!content) return true;
    if (cJSON_IsString(content)) {
        buf_addz(out, content->valuestring);
        return true;
    }
    if (!cJSON_IsArray(content))
        return messages_refuse(rd->r, "%s: must be a string or an array of blocks", path);
    cJSON_ArrayForEach(part, content) {
        char at[80];
        const char *type = json_string(part, "type"), *text = json_string(part, "text");
        snprintf(at, sizeof at, "%s.%d", path, i++);
        if (!type || strcmp(type, "text") != 0) return refuse_type(rd, at, type);
        if (!text) return messages_refuse(rd->r, "%s.text: Field required", at);
        buf_addz(out, i > 1 ? "\n" : "");
        buf_addz(out, text);
    }
    return true;
}

// --- messages ---

// Takes v, NULL: no memory. The key is not copied: a long conversation has hundreds of messages.
static bool put(cJSON *message, const char *literal, cJSON *v) {
    if (v && cJSON_AddItemToObjectCS(message, literal, v)) return true;
    cJSON_Delete(v);
    return false;
}

// role: a literal. content NULL: it is set later, and has its place before the calls.
static cJSON *add_message(struct reading *rd, const char *role, const char *content) {
    cJSON *m = cJSON_CreateObject();
    if (!m || !cJSON_AddItemToArray(rd->r->in.request->messages, m)) {
        cJSON_Delete(m);
        messages_no_memory(rd->r);
        return NULL;
    }
    if (put(m, "role", cJSON_CreateStringReference(role)) &&
        put(m, "content", content ? cJSON_CreateString(content) : cJSON_CreateNull()))
        return m;
    messages_no_memory(rd->r);
    return NULL;
}

// Adds the user's text so far as a message.
static bool flush_text(struct reading *rd) {
    bool ok = true;
    if (rd->text.error) return messages_no_memory(rd->r);
    if (rd->has_text) ok = add_message(rd, "user", buf_z(&rd->text));
    buf_reset(&rd->text);
    rd->has_text = false;
    return ok;
}

static bool add_text(struct reading *rd, const char *text, const char *between) {
    if (!text) return REFUSE_BLOCK(rd, ".%s: Field required", "text");
    if (rd->has_text) buf_addz(&rd->text, between);
    buf_addz(&rd->text, text);
    rd->has_text = true;
    return true;
}

// --- what a user says ---

static const cJSON *find_call(const struct reading *rd, const char *id) {
    const cJSON *call;
    cJSON_ArrayForEach(call, rd->calls) if (strcmp(json_string(call, "id"), id) == 0) return call;
    return NULL;
}

static bool was_answered(const struct reading *rd, const char *id) {
    const cJSON *m = rd->r->in.request->messages->child ? rd->r->in.request->messages->child->prev
                                                        : NULL; // the last one
    for (int i = 0; i < rd->n_answered; i++, m = m->prev) {
        while (strcmp(json_string(m, "role"), "tool") != 0) m = m->prev;
        if (strcmp(json_string(m, "tool_call_id"), id) == 0) return true;
    }
    return false;
}

static bool add_result(struct reading *rd, const cJSON *block, const cJSON *call) {
    const char *id = json_string(call, "id"),
               *name = json_string(json_member(call, "function"), "name");
    char path[64], content[80];
    struct buf text;
    snprintf(content, sizeof content, "%s.content", path_of(rd, path));
    buf_init(&text, SIZE_MAX / 2);
    // No template has a place for is_error, and the model should know.
    if (cJSON_IsTrue(json_member(block, "is_error"))) buf_addz(&text, "Error: ");
    bool ok = read_text(rd, json_member(block, "content"), content, &text);
    if (ok && text.error) ok = messages_no_memory(rd->r);
    cJSON *m = ok ? add_message(rd, "tool", buf_z(&text)) : NULL;
    buf_release(&text);
    if (!m) return false;
    rd->n_answered++;
    return (cJSON_AddStringToObject(m, "tool_call_id", id) &&
            cJSON_AddStringToObject(m, "name", name)) ||
           messages_no_memory(rd->r);
}

static bool read_result(struct reading *rd, const cJSON *block) {
    const char *id = json_string(block, "tool_use_id");
    if (!id) return REFUSE_BLOCK(rd, ".%s: Field required", "tool_use_id");
    const cJSON *call = find_call(rd, id);
    if (!call)
        return REFUSE_BLOCK(
            rd,
            ": unexpected `tool_use_id` found in `tool_result` blocks: %.128s. Each "
            "`tool_result` block must have a corresponding `tool_use` block in the "
            "previous message.",
            id);
    if (was_answered(rd, id))
        return REFUSE_BLOCK(rd, ": `%.128s` has two `tool_result` blocks", id);
    return flush_text(rd) && add_result(rd, block, call);
}

static bool read_user_block(struct reading *rd, const cJSON *block) {
    const char *type = json_string(block, "type");
    if (type && strcmp(type, "text") == 0) return add_text(rd, json_string(block, "text"), "\n");
    if (type && strcmp(type, "tool_result") == 0) return read_result(rd, block);
    return refuse_type(rd, path_of(rd, (char[64]){0}), type);
}

// Checks that every call has its result.
static bool end_calls(struct reading *rd) {
    const cJSON *call;
    if (rd->n_answered < rd->n_calls) {
        cJSON_ArrayForEach(call, rd->calls) if (!was_answered(rd, json_string(call, "id"))) break;
        return messages_refuse(rd->r,
                               "messages.%d: `tool_use` ids were found without `tool_result` "
                               "blocks immediately after: "
                               "%.128s. Each `tool_use` block must have a corresponding "
                               "`tool_result` block in the next "
                               "message.",
                               rd->message, json_string(call, "id"));
    }
    rd->calls = NULL;
    rd->n_calls = rd->n_answered = 0;
    return true;
}

static bool read_user(struct reading *rd, const cJSON *content) {
    const cJSON *block;
    rd->block = -1;
    if (cJSON_IsString(content) && *content->valuestring)
        return add_text(rd, content->valuestring, "\n");
    if (content && !cJSON_IsString(content) && !cJSON_IsArray(content))
        return messages_refuse(rd->r, "messages.%d.content: must be a string or a list of blocks",
                               rd->message);
    if (!cJSON_IsArray(content) || !content->child)
        return messages_refuse(rd->r, "messages.%d: all messages must have non-empty content",
                               rd->message);
    cJSON_ArrayForEach(block, content) {
        rd->block++;
        if (!read_user_block(rd, block)) return false;
    }
    return true;
}

// --- what the assistant said ---

static bool read_thinking(struct reading *rd, const cJSON *block) {
    const char *text = json_string(block, "thinking");
    if (!text) return REFUSE_BLOCK(rd, ".%s: Field required", "thinking");
    if (!json_string(block, "signature"))
        return REFUSE_BLOCK(rd, ".%s: Field required", "signature");
    buf_addz(&rd->thinking, text);
    return true;
}

static bool add_call(struct reading *rd, cJSON *message, const char *id, const char *name,
                     const cJSON *input) {
    if (!rd->calls) rd->calls = cJSON_AddArrayToObject(message, "tool_calls");
    cJSON *call =
        json_append(rd->calls, json_tree("{id:%s,type:'function',function:{name:%s}}", id, name));
    rd->n_calls++;
    return json_set(json_member(call, "function"), "arguments", cJSON_Duplicate(input, true)) ||
           messages_no_memory(rd->r);
}

static bool read_call(struct reading *rd, const cJSON *block, cJSON *message) {
    const char *id = json_string(block, "id"), *name = json_string(block, "name");
    const cJSON *input = json_member(block, "input");
    if (!id || !*id) return REFUSE_BLOCK(rd, ".%s: Field required", "id");
    if (!name || !*name) return REFUSE_BLOCK(rd, ".%s: Field required", "name");
    if (!cJSON_IsObject(input)) return REFUSE_BLOCK(rd, ".%s: must be an object", "input");
    if (find_call(rd, id)) return REFUSE_BLOCK(rd, ".id: two calls have the id '%.128s'", id);
    if (rd->n_calls == CALLS_MAX)
        return REFUSE_BLOCK(rd, ": an answer has at most %d tool_use blocks", CALLS_MAX);
    return add_call(rd, message, id, name, input);
}

static bool read_assistant_block(struct reading *rd, const cJSON *block, cJSON *message) {
    const char *type = json_string(block, "type");
    if (!type) return refuse_type(rd, path_of(rd, (char[64]){0}), type);
    if (strcmp(type, "text") == 0) return add_text(rd, json_string(block, "text"), "");
    if (strcmp(type, "thinking") == 0) return read_thinking(rd, block);
    if (strcmp(type, "tool_use") == 0) return read_call(rd, block, message);
    // Only the server that made it can read it: it is left out.
    if (strcmp(type, "redacted_thinking") == 0)
        return json_string(block, "data") || REFUSE_BLOCK(rd, ".%s: Field required", "data");
    return refuse_type(rd, path_of(rd, (char[64]){0}), type);
}

static bool fill_assistant(struct reading *rd, cJSON *message, bool has_calls) {
    if (rd->text.error || rd->thinking.error) return messages_no_memory(rd->r);
    bool ok = true;
    if (rd->has_text || !has_calls)
        ok = json_set(message, "content", cJSON_CreateString(buf_z(&rd->text)));
    if (ok && rd->thinking.len)
        ok = put(message, "reasoning_content", cJSON_CreateString(buf_z(&rd->thinking)));
    buf_reset(&rd->text);
    buf_reset(&rd->thinking);
    rd->has_text = false;
    return ok || messages_no_memory(rd->r);
}

// An answer may be empty, because a model may say nothing.
static bool read_assistant(struct reading *rd, const cJSON *content) {
    const cJSON *block;
    rd->block = -1;
    if (!flush_text(rd) || !end_calls(rd)) return false;
    cJSON *message = add_message(rd, "assistant", NULL);
    if (!message) return false;
    if (cJSON_IsString(content)) {
        add_text(rd, content->valuestring, "");
        return fill_assistant(rd, message, false);
    }
    if (!cJSON_IsArray(content))
        return messages_refuse(rd->r, "messages.%d.content: must be a string or an array of blocks",
                               rd->message);
    cJSON_ArrayForEach(block, content) {
        rd->block++;
        if (!read_assistant_block(rd, block, message)) return false;
    }
    return fill_assistant(rd, message, rd->n_calls > 0);
}

// --- the whole ---

// A system message: the field `system`, or one within the conversation.
static bool read_system(struct reading *rd, const cJSON *content, const char *path) {
    bool ok = read_text(rd, content, path, &rd->text);
    if (ok && rd->text.error) ok = messages_no_memory(rd->r);
    if (ok && rd->text.len) ok = add_message(rd, "system", buf_z(&rd->text));
    buf_reset(&rd->text);
    return ok;
}

// --- messages of one text ---

// The string that a content is, or that its only block has. NULL: it is neither.
static cJSON *only_text(cJSON *content) {
    if (cJSON_IsString(content)) return content;
    cJSON *block = cJSON_IsArray(content) ? content->child : NULL, *text;
    const char *type = json_string(block, "type");
    if (!type || block->next || strcmp(type, "text") != 0) return NULL;
    text = cJSON_GetObjectItemCaseSensitive(block, "text");
    return cJSON_IsString(text) ? text : NULL;
}

static bool has_role(const cJSON *message, const char *role) {
    const char *s = json_string(message, "role");
    return s && strcmp(s, role) == 0;
}

// Whether the message, which has a role and a content of this text, is one message of the conversation. With further
// members it is not: the conversation must not get them.
static bool stands_alone(const struct reading *rd, const cJSON *message, const cJSON *text) {
    if (message->child->next->next) return false;
    if (has_role(message, "assistant")) return true;
    return has_role(message, "user") && *text->valuestring && !rd->has_text &&
           !has_role(message->next, "user");
}

// Moves the message into the conversation, which may have hundreds of its kind: a copy takes four allocations.
static bool move_message(struct reading *rd, cJSON *list, cJSON *message, cJSON *content,
                         cJSON *text) {
    bool answer = has_role(message, "assistant");
    if (answer && (!flush_text(rd) || !end_calls(rd))) return false;
    if (text != content) {
        cJSON_DetachItemViaPointer(content->child, text);
        if (!(text->type & cJSON_StringIsConst)) cJSON_free(text->string);
        text->string = (char *)(size_t) "content"; // never written to
        text->type |= cJSON_StringIsConst;
        cJSON_ReplaceItemViaPointer(message, content, text);
    }
    return cJSON_AddItemToArray(rd->r->in.request->messages,
                                cJSON_DetachItemViaPointer(list, message));
}

static bool read_message(struct reading *rd, cJSON *list, cJSON *message) {
    cJSON *content = json_member(message, "content"), *text = only_text(content);
    char path[64];
    rd->block = -1;
    if (json_string(message, "role") && text && stands_alone(rd, message, text))
        return move_message(rd, list, message, content, text);
    if (has_role(message, "user")) return read_user(rd, content);
    if (has_role(message, "assistant")) return read_assistant(rd, content);
    if (has_role(message, "system"))
        return flush_text(rd) && read_system(rd, content, path_of(rd, path));
    return messages_refuse(rd->r, "messages.%d.role: must be 'user' or 'assistant'", rd->message);
}

static bool read_messages(struct reading *rd, cJSON *list) {
    cJSON *next;
    bool answer = false; // the last one is the assistant's
    if (!list) return messages_refuse(rd->r, "messages: Field required");
    if (!cJSON_IsArray(list)) return messages_refuse(rd->r, "messages: must be a list of messages");
    if (!list->child) return messages_refuse(rd->r, "messages: at least one message is required");
    for (cJSON *message = list->child; message; message = next) {
        next = message->next;
        answer = has_role(message, "assistant");
        if (!read_message(rd, list, message)) return false;
        rd->message++;
    }
    rd->message--;
    if (answer)
        return messages_refuse(rd->r, "messages: the conversation must end with a user message; "
                                      "continuing an assistant's is not served here");
    return flush_text(rd) && end_calls(rd);
}

bool messages_read_conversation(struct messages_request *r, cJSON *body) {
    struct reading rd = {.r = r, .block = -1};
    buf_init(&rd.text, SIZE_MAX / 2);
    buf_init(&rd.thinking, SIZE_MAX / 2);
    r->in.request->messages = cJSON_CreateArray();
    bool ok = r->in.request->messages ? read_system(&rd, json_member(body, "system"), "system") &&
                                            read_messages(&rd, json_member(body, "messages"))
                                      : messages_no_memory(r);
    buf_release(&rd.text);
    buf_release(&rd.thinking);
    return ok;
}
