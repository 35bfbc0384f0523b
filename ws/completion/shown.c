// What people see of a request's messages: the input of its turn, and the title of a session that begins with several.
// One question is shown as it is. Several messages (a client that brings its history, results of tools) are
// shown one below the other with their roles. Neither has marks of the template: what exactly the model reads is the
// turn's tokens. See plan.h.
#include "sessions/title.h"
#include "ws/completion/plan.h"
#include <stdlib.h>
#include <string.h>

#define SHOWN_BYTES ((size_t)64 << 20)

static const char *string_of(const cJSON *object, const char *key) {
    const char *s = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
    return s ? s : "";
}

static bool has_role(const cJSON *message, const char *role) {
    return message && strcmp(string_of(message, "role"), role) == 0;
}

static const char *name_of_role(const cJSON *message) {
    if (has_role(message, "system")) return "System";
    if (has_role(message, "assistant")) return "Assistant";
    return has_role(message, "tool") ? "Tool" : "User";
}

static void begin_line(struct buf *out, const char *role) {
    buf_addf(out, "%s%s: ", out->len ? "\n\n" : "", role);
}

static int add_call(struct buf *out, const cJSON *call) {
    const cJSON *function = cJSON_GetObjectItemCaseSensitive(call, "function");
    const cJSON *arguments = cJSON_GetObjectItemCaseSensitive(function, "arguments");
    char *printed = cJSON_IsString(arguments) ? strdup(arguments->valuestring)
                                              : cJSON_PrintUnformatted(arguments);
    if (arguments && !printed) return E_NOMEM;
    begin_line(out, "Assistant");
    buf_addf(out, "calls %s %s", string_of(function, "name"), printed ? printed : "");
    free(printed);
    return 0;
}

static int add_message(struct buf *out, const cJSON *message) {
    const char *words = string_of(message, "content");
    const cJSON *call;
    if (words[0]) {
        begin_line(out, name_of_role(message));
        buf_addz(out, words);
    }
    cJSON_ArrayForEach(call, cJSON_GetObjectItemCaseSensitive(message, "tool_calls"))
        TRY(add_call(out, call));
    return 0;
}

// The session shows the system's words that a conversation begins with.
static const cJSON *skip_system(const cJSON *message, int *from) {
    if (*from > 0 || !has_role(message, "system")) return message;
    ++*from;
    return message->next;
}

char *completion_words(const struct completion_request *r, int from, int to, const char *text,
                       size_t len) {
    const cJSON *message = skip_system(cJSON_GetArrayItem(r->messages, from), &from);
    struct buf out;
    int rc = 0;
    if (from + 1 == to && has_role(message, "user") && string_of(message, "content")[0])
        return strdup(string_of(message, "content"));
    buf_init(&out, SHOWN_BYTES);
    for (; message && from < to && rc == 0; message = message->next, from++)
        rc = add_message(&out, message);
    char *words = out.len ? strdup(buf_z(&out)) : strndup(text, len);
    if (rc < 0 || out.error) {
        free(words);
        words = NULL;
    }
    buf_release(&out);
    return words;
}

char *completion_shown(const struct completion_request *r) {
    const struct completion_plan *p = r->plan;
    return completion_words(r, p->n_old, cJSON_GetArraySize(r->messages), p->text + p->from,
                            p->len - p->from);
}

bool completion_title(const struct completion_request *r, char *out, size_t cap) {
    int from = 0;
    const cJSON *message = skip_system(r->messages->child, &from);
    if (!message || !message->next) return false; // the turn names its session
    while (message && !(has_role(message, "user") && string_of(message, "content")[0]))
        message = message->next;
    const char *words = string_of(message, "content");
    title_from(words, strlen(words), out, cap);
    return out[0];
}
