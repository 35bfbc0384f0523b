// Ids of responses and items. See responses_id.h.
#include "ws/openai/responses_id.h"
#include "sessions/store/record.h"
#include <stdio.h>
#include <string.h>

#define DIGITS_MAX 15 // far above any turn, far below overflow

void responses_id_response(char out[RESPONSES_ID_MAX], const char *session, int64_t turn) {
    snprintf(out, RESPONSES_ID_MAX, "resp_%s-%lld", session, (long long)turn);
}

void responses_id_item(char out[RESPONSES_ID_MAX], const char *prefix, const char *session,
                       int64_t turn, int64_t index, bool input) {
    snprintf(out, RESPONSES_ID_MAX, "%s_%s-%lld-%s%lld", prefix, session, (long long)turn,
             input ? "i" : "", (long long)index);
}

void responses_id_conversation(char out[RESPONSES_ID_MAX], const char *session) {
    snprintf(out, RESPONSES_ID_MAX, "conv_%s", session);
}

void responses_id_added(char out[RESPONSES_ID_MAX], const char *prefix, const char *session,
                        int64_t index) {
    snprintf(out, RESPONSES_ID_MAX, "%s_%s-c%lld", prefix, session, (long long)index);
}

const char *responses_id_prefix(const char *type) {
    static const char *const prefixes[][2] = {
        {"function_call", "fc"},     {"function_call_output", "fco"},
        {"custom_tool_call", "ctc"}, {"custom_tool_call_output", "ctco"},
        {"reasoning", "rs"},
    };
    for (size_t i = 0; type && i < sizeof prefixes / sizeof *prefixes; i++)
        if (strcmp(type, prefixes[i][0]) == 0) return prefixes[i][1];
    return "msg";
}

// The number after the last hyphen of text[0..*len), and the letter before it (i, c, or 0); cuts both off.
// -1: there is none.
static int64_t cut_number(const char *text, size_t *len, char *mark) {
    size_t from = *len, first;
    int64_t value = 0;
    while (from > 0 && text[from - 1] >= '0' && text[from - 1] <= '9') from--;
    first = from;
    *mark = from > 0 && (text[from - 1] == 'i' || text[from - 1] == 'c') ? text[from - 1] : 0;
    if (*mark) from--;
    if (first == *len || *len - first > DIGITS_MAX || from == 0 || text[from - 1] != '-') return -1;
    if (text[first] == '0' && *len - first > 1) return -1; // one id has one spelling
    for (size_t i = first; i < *len; i++) value = value * 10 + (text[i] - '0');
    *len = from - 1;
    return value;
}

static bool take_session(const char *text, size_t len, char out[SESSION_ID_MAX + 1]) {
    if (len == 0 || len > SESSION_ID_MAX) return false;
    memcpy(out, text, len);
    out[len] = '\0';
    return session_id_valid(out);
}

bool responses_id_parse(const char *text, struct responses_id *out) {
    char mark;
    if (strncmp(text, "resp_", 5) != 0) return false;
    text += 5;
    size_t len = strlen(text);
    *out = (struct responses_id){.index = -1, .turn = cut_number(text, &len, &mark)};
    return out->turn >= 0 && !mark && take_session(text, len, out->session);
}

bool responses_id_parse_conversation(const char *text, char session[SESSION_ID_MAX + 1]) {
    return strncmp(text, "conv_", 5) == 0 && take_session(text + 5, strlen(text + 5), session);
}

bool responses_id_parse_item(const char *text, struct responses_id *out) {
    const char *rest = strchr(text, '_');
    char kind, mark = 0;
    if (!rest || rest == text || strncmp(text, "resp_", 5) == 0) return false;
    size_t len = strlen(++rest);
    *out = (struct responses_id){.index = cut_number(rest, &len, &kind), .turn = TURN_NONE};
    if (out->index < 0) return false;
    out->added = kind == 'c';
    out->input = kind == 'i';
    if (!out->added) out->turn = cut_number(rest, &len, &mark);
    return (out->added || out->turn >= 0) && !mark && take_session(rest, len, out->session);
}
