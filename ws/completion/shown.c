// What people see of a request's messages: the input of its turn, and the title of a session that begins with
// several. One question is shown as it is. Several messages (a client that brings its history, results of tools)
// are shown one below the other with their roles. Marks of the template are left out; the turn's tokens say what
// exactly the model reads. A message without words (an empty one) shows nothing. See plan.h.
#include "sessions/state/title.h"
#include "ws/completion/plan.h"
#include <stdlib.h>
#include <string.h>

#define SHOWN_BYTES ((size_t)64 << 20)

static const char *name_of_role(const cJSON *message) {
    if (message_has_role(message, "system")) return "System";
    if (message_has_role(message, "assistant")) return "Assistant";
    return message_has_role(message, "tool") ? "Tool" : "User";
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
    buf_addf(out, "calls %s %s", message_text(function, "name"), printed ? printed : "");
    free(printed);
    return 0;
}

static int add_message(struct buf *out, const cJSON *message) {
    const char *words = message_text(message, "content");
    const cJSON *call;
    if (words[0]) {
        begin_line(out, name_of_role(message));
        buf_addz(out, words);
    }
    cJSON_ArrayForEach(call, cJSON_GetObjectItemCaseSensitive(message, "tool_calls"))
        TRY(add_call(out, call));
    return 0;
}

// Skips a system message at the beginning, which the session itself shows.
static const cJSON *skip_system(const cJSON *message, int *from) {
    if (*from > 0 || !message_has_role(message, "system")) return message;
    ++*from;
    return message->next;
}

char *completion_words(const struct completion_request *r, int from, int to) {
    const cJSON *message = skip_system(cJSON_GetArrayItem(r->messages, from), &from);
    struct buf out;
    int rc = 0;
    if (from + 1 == to && message_has_role(message, "user"))
        return strdup(message_text(message, "content"));
    buf_init(&out, SHOWN_BYTES);
    for (; message && from < to && rc == 0; message = message->next, from++)
        rc = add_message(&out, message);
    char *words = rc < 0 || out.error ? NULL : strdup(buf_z(&out));
    buf_release(&out);
    return words;
}

char *completion_shown(const struct completion_request *r) {
    return completion_words(r, r->plan->n_old, cJSON_GetArraySize(r->messages));
}

bool completion_title(const struct completion_request *r, char *out, size_t cap) {
    int from = 0;
    const cJSON *message = skip_system(r->messages->child, &from);
    if (!message || !message->next) return false; // the turn gives the session its title
    for (; message; message = message->next) {
        const char *words = message_text(message, "content");
        if (!message_has_role(message, "user") || !title_has_words(words, strlen(words))) continue;
        title_from(words, strlen(words), out, cap);
        return true;
    }
    return false;
}
