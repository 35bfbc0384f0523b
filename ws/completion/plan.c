// See plan.h.
#include "ws/completion/plan.h"
#include "base/siphash.h"
#include "ws/net/http.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- rendering and encoding ---

// Whether the text ends with the opening mark, so that the answer begins inside the thinking.
static bool ends_thinking(const char *text, size_t len, const char *open) {
    size_t n = open ? strlen(open) : 0;
    while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == ' ')) len--;
    return n > 0 && len >= n && memcmp(text + len - n, open, n) == 0;
}

int completion_render_messages(const struct completion_request *r, const cJSON *messages,
                               struct chat_rendering **out, struct completion_failure *f) {
    struct err err = {0};
    engine_rendering_free(*out);
    *out = NULL;
    int rc = engine_render(r->served->engine, messages, r->tools, r->plan->args, out, &err);
    if (rc == E_NOMEM) return completion_no_memory(f);
    if (rc < 0)
        return completion_refuse(f, rc == E_UNSUPPORTED ? "unsupported" : "invalid", "messages",
                                 "%s", err.text);
    return 0;
}

int completion_render(struct completion_request *r, struct completion_failure *f) {
    struct completion_plan *p = r->plan;
    TRY(completion_render_messages(r, r->messages, &p->rendering, f));
    p->text = engine_rendering_text(p->rendering, &p->len);
    p->thinks = ends_thinking(p->text, p->len, engine_syntax(r->served->engine).think_open);
    return 0;
}

bool completion_thinks(const struct completion_request *r) {
    return r->plan->thinks;
}

const struct chat_rendering *completion_plain_rendering(const struct completion_plan *p) {
    return p->plain ? p->plain_rendering : p->rendering;
}

int completion_encode(const struct completion_request *r, size_t from, size_t to, int32_t **ids,
                      size_t *n, struct completion_failure *f) {
    struct token_list list;
    struct err err = {0};
    token_list_init(&list);
    int rc = engine_rendering_encode(r->plan->rendering, from, to, &list, &err);
    *ids = rc == 0 ? token_list_take(&list, n) : NULL;
    token_list_release(&list);
    if (rc == E_NOMEM || (rc == 0 && !*ids && *n)) return completion_no_memory(f);
    return rc < 0 ? completion_refuse(f, "invalid", "messages", "%s", err.text) : 0;
}

int64_t completion_prompt_tokens(const struct completion_plan *p, size_t n_new) {
    const struct given_answer *g = p->given;
    return p->parent_tokens + (int64_t)(g ? g->n_input + g->n_output : 0) + (int64_t)n_new;
}

// --- names ---

void completion_session_name(const struct http_head *h, char out[SESSION_ID_MAX + 1]) {
    static const enum http_header headers[] = {HEADER_SESSION_ID,     HEADER_SESSION,
                                               HEADER_CLAUDE_SESSION, HEADER_DYNAMO_SESSION,
                                               HEADER_AFFINITY,       HEADER_PARENT_SESSION};
    static const uint64_t key[2] = {0x73657373696f6e, 0x6e616d65};
    const char *name = "";
    for (size_t i = 0; i < sizeof headers / sizeof *headers && !name[0]; i++)
        name = h->header[headers[i]];
    out[0] = '\0';
    if (!name[0]) return;
    struct hash128 hash = siphash128(key, name, strlen(name));
    if (session_id_valid(name))
        snprintf(out, SESSION_ID_MAX + 1, "%s", name);
    else
        snprintf(out, SESSION_ID_MAX + 1, "%016llx%016llx", (unsigned long long)hash.hi,
                 (unsigned long long)hash.lo);
}

bool completion_name_session(struct completion_request *r, const char *name) {
    if (*name) r->session = strdup(name);
    return !*name || r->session;
}

void completion_id(char out[COMPLETION_ID_MAX], const char *prefix, const char *session,
                   int64_t turn) {
    snprintf(out, COMPLETION_ID_MAX, "%s%s-%lld", prefix, session, (long long)turn);
}
