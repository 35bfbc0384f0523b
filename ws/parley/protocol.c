// Decoding: one JSON text to one struct message. What the wire may say is checked here, by type and
// by range; what only the session service can know (who owns what, what fits) is its own business.
#include "ws/parley/protocol.h"
#include "base/json_raw.h"
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    enum message_type type;
} types[] = {
    {"hello", MESSAGE_HELLO},
    {"ping", MESSAGE_PING},
    {"session.open", MESSAGE_SESSION_OPEN},
    {"session.attach", MESSAGE_SESSION_ATTACH},
    {"session.detach", MESSAGE_SESSION_DETACH},
    {"session.typing", MESSAGE_SESSION_TYPING},
    {"session.get", MESSAGE_SESSION_GET},
    {"session.list", MESSAGE_SESSION_LIST},
    {"session.update", MESSAGE_SESSION_UPDATE},
    {"session.close", MESSAGE_SESSION_CLOSE},
    {"sessions.watch", MESSAGE_SESSIONS_WATCH},
    {"turn.start", MESSAGE_TURN_START},
    {"turn.cancel", MESSAGE_TURN_CANCEL},
    {"turn.get", MESSAGE_TURN_GET},
    {"turn.replay", MESSAGE_TURN_REPLAY},
    {"session.events", MESSAGE_SESSION_EVENTS},
    {"session.rewind", MESSAGE_SESSION_REWIND},
    {"session.fork", MESSAGE_SESSION_FORK},
    {"turn.regenerate", MESSAGE_TURN_REGENERATE},
    {"session.export", MESSAGE_SESSION_EXPORT},
    {"session.import", MESSAGE_SESSION_IMPORT},
};

// What one decoding carries along.
struct decoder {
    struct message *m;
    const cJSON *json;
    const char **code;
    struct err *err;
};

static int fail(struct decoder *d, const char *code, int rc) {
    *d->code = code;
    return rc;
}

static int bad(struct decoder *d, const char *code, const char *what, const char *key) {
    *d->code = code;
    return err_set(d->err, E_INVAL, "'%s' %s", key, what);
}

// --- keys ---

static int get_string(struct decoder *d, const char *key, const char **out) {
    int rc = json_get_string(d->json, key, out, d->err);
    return rc < 0 ? fail(d, "bad_message", rc) : rc;
}

static int get_text(struct decoder *d, const char *key, size_t max, const char **out) {
    int rc = get_string(d, key, out);
    if (rc == JSON_PRESENT && strlen(*out) > max) {
        *d->code = "invalid";
        return err_set(d->err, E_LIMIT, "'%s' has %zu bytes; the limit is %zu", key, strlen(*out),
                       max);
    }
    return rc;
}

static int get_bool(struct decoder *d, const char *key, bool *out) {
    int rc = json_get_bool(d->json, key, out, d->err);
    return rc < 0 ? fail(d, "bad_message", rc) : rc;
}

// A number out of range is "invalid"; anything that is no number is "bad_message".
static int get_int(struct decoder *d, const char *key, int64_t min, int64_t max, int64_t *out) {
    int rc = json_get_int(d->json, key, min, max, out, d->err);
    if (rc >= 0) return rc;
    return fail(d,
                cJSON_IsNumber(cJSON_GetObjectItemCaseSensitive(d->json, key)) ? "invalid"
                                                                               : "bad_message",
                rc);
}

// A turn of the tree, null for the empty log before all of them; left out: TURN_HEAD.
static int get_turn(struct decoder *d, const char *key, int64_t *out) {
    *out = TURN_HEAD;
    if (cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(d->json, key))) {
        *out = TURN_NONE;
        return JSON_PRESENT;
    }
    return get_int(d, key, 0, (int64_t)1 << 53, out);
}

bool protocol_session_id_valid(const char *id) {
    size_t n = strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-");
    return n >= 1 && n <= SESSION_ID_MAX && id[n] == '\0';
}

static int get_session(struct decoder *d, bool required) {
    TRY(get_string(d, "session", &d->m->session));
    if (!d->m->session) return required ? bad(d, "bad_message", "is missing", "session") : 0;
    if (!protocol_session_id_valid(d->m->session))
        return bad(d, "invalid", "must be 1 to 64 of A-Z a-z 0-9 _ -", "session");
    return 0;
}

// "finish", or {"cancel_after_ms": N}.
static int get_on_disconnect(struct decoder *d) {
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(d->json, "on_disconnect");
    const char *how = cJSON_GetStringValue(v);
    if (!v || cJSON_IsNull(v)) return 0;
    if (how && strcmp(how, "finish") == 0) {
        d->m->cancel_after_ms = 0;
        return 0;
    }
    if (!cJSON_IsObject(v))
        return bad(d, how ? "invalid" : "bad_message", "is \"finish\" or {\"cancel_after_ms\": N}",
                   "on_disconnect");
    const cJSON *ms = cJSON_GetObjectItemCaseSensitive(v, "cancel_after_ms");
    int rc = json_get_int(v, "cancel_after_ms", 1, SESSION_CANCEL_AFTER_MAX_MS,
                          &d->m->cancel_after_ms, d->err);
    if (rc < 0) return fail(d, cJSON_IsNumber(ms) ? "invalid" : "bad_message", rc);
    return ms ? 0 : bad(d, "bad_message", "needs cancel_after_ms", "on_disconnect");
}

// As text: printing what cJSON read would round seeds to 53 bits.
static int get_sampling(struct decoder *d, const char *text) {
    const cJSON *object = NULL;
    size_t len;
    int rc = json_get_object(d->json, "sampling", &object, d->err);
    if (rc < 0) return fail(d, "bad_message", rc);
    if (!object) return 0;
    const char *raw = json_raw_value(text, "sampling", &len);
    if (!raw) return bad(d, "bad_message", "must be written without escapes", "sampling");
    d->m->sampling_text = strndup(raw, len);
    if (!d->m->sampling_text)
        return fail(d, "internal", err_set(d->err, E_NOMEM, "no memory for 'sampling'"));
    d->m->sampling = d->m->sampling_text;
    return 0;
}

// --- messages ---

static int decode_open(struct decoder *d, const char *text) {
    struct session_open *o = &d->m->open;
    *o = (struct session_open){.sink_len = -1};
    TRY(get_session(d, false));
    o->id = d->m->session;
    TRY(get_string(d, "model", &o->model));
    TRY(get_int(d, "session_len", 1, INT32_MAX, &o->session_len));
    TRY(get_int(d, "memory_len", 1, INT32_MAX, &o->memory_len));
    TRY(get_int(d, "sink_len", 0, INT32_MAX, &o->sink_len));
    TRY(get_text(d, "system", PROTOCOL_SYSTEM_BYTES, &o->system));
    TRY(get_text(d, "title", PROTOCOL_TITLE_BYTES, &o->title));
    TRY(get_sampling(d, text));
    TRY(get_on_disconnect(d));
    o->cancel_after_ms = d->m->cancel_after_ms > 0 ? d->m->cancel_after_ms : 0;
    o->sampling = d->m->sampling;
    return 0;
}

static int decode_ids(struct decoder *d, const cJSON *array) {
    struct message *m = d->m;
    const cJSON *item;
    size_t n = 0;
    m->ids = malloc(((size_t)cJSON_GetArraySize(array) + 1) * sizeof(*m->ids));
    if (!m->ids) return fail(d, "internal", err_set(d->err, E_NOMEM, "no memory for the ids"));
    cJSON_ArrayForEach(item, array) {
        double v = cJSON_IsNumber(item) ? item->valuedouble : -1;
        if (!(v >= 0 && v <= INT32_MAX) || v != (double)(int32_t)v) {
            *d->code = cJSON_IsNumber(item) ? "invalid" : "bad_message";
            return err_set(d->err, E_INVAL, "'input.ids' must hold token ids; number %zu is none",
                           n);
        }
        m->ids[n++] = (int32_t)v;
    }
    m->input = (struct turn_input){.kind = INPUT_IDS, .ids = m->ids, .n_ids = n};
    return 0;
}

static int decode_input(struct decoder *d) {
    const cJSON *input = NULL, *ids = NULL;
    const char *content = NULL, *raw = NULL;
    bool go_on = false;
    int rc = json_get_object(d->json, "input", &input, d->err);
    if (rc < 0) return fail(d, "bad_message", rc);
    if (!input) return bad(d, "bad_message", "is missing", "input");
    if ((rc = json_get_string(input, "content", &content, d->err)) < 0 ||
        (rc = json_get_string(input, "text", &raw, d->err)) < 0 ||
        (rc = json_get_array(input, "ids", &ids, d->err)) < 0 ||
        (rc = json_get_bool(input, "continue", &go_on, d->err)) < 0)
        return fail(d, "bad_message", rc);
    if (!!content + !!raw + !!ids + go_on != 1)
        return bad(d, "bad_message", "must hold exactly one of content, text, ids, continue: true",
                   "input");
    if (go_on) {
        d->m->input = (struct turn_input){.kind = INPUT_CONTINUE};
        return 0;
    }
    if (ids) return decode_ids(d, ids);
    const char *text = content ? content : raw;
    d->m->input = (struct turn_input){
        .kind = content ? INPUT_CONTENT : INPUT_TEXT, .text = text, .text_len = strlen(text)};
    return 0;
}

static int decode_get(struct decoder *d) {
    TRY(get_session(d, true));
    TRY(get_bool(d, "attach", &d->m->attach));
    TRY(get_int(d, "last", 0, PROTOCOL_TURNS_MAX, &d->m->last));
    TRY(get_int(d, "before", 0, (int64_t)1 << 53, &d->m->before));
    // What is attached is told what follows the newest turn: a page of older ones has no such end.
    if (d->m->before >= 0 && d->m->attach)
        return bad(d, "bad_message", "does not go together with 'attach'", "before");
    return 0;
}

static int decode_list(struct decoder *d) {
    TRY(get_text(d, "query", 1024, &d->m->query));
    TRY(get_string(d, "forked_from", &d->m->forked_from));
    TRY(get_text(d, "cursor", 256, &d->m->cursor));
    return get_int(d, "limit", 1, PROTOCOL_LIST_MAX, &d->m->limit);
}

static int decode_update(struct decoder *d, const char *text) {
    TRY(get_session(d, true));
    TRY(get_text(d, "title", PROTOCOL_TITLE_BYTES, &d->m->title));
    TRY(get_on_disconnect(d));
    return get_sampling(d, text);
}

static int decode_start(struct decoder *d, const char *text) {
    TRY(get_session(d, true));
    TRY(decode_input(d));
    TRY(get_turn(d, "after", &d->m->after));
    TRY(get_sampling(d, text));
    return get_bool(d, "queue", &d->m->queue);
}

static int decode_rewind(struct decoder *d) {
    TRY(get_session(d, true));
    TRY(get_turn(d, "turn", &d->m->turn));
    if (d->m->turn == TURN_HEAD) return bad(d, "bad_message", "is missing", "turn");
    return get_bool(d, "leaf", &d->m->leaf);
}

static int decode_regenerate(struct decoder *d, const char *text) {
    TRY(get_session(d, true));
    TRY(get_turn(d, "turn", &d->m->turn));
    if (d->m->turn == TURN_NONE)
        return bad(d, "bad_message", "must be the number of a turn", "turn");
    return get_sampling(d, text);
}

static int decode_fork(struct decoder *d) {
    TRY(get_session(d, true));
    TRY(get_turn(d, "turn", &d->m->turn));
    TRY(get_string(d, "new_session", &d->m->new_session));
    if (d->m->new_session && !protocol_session_id_valid(d->m->new_session))
        return bad(d, "invalid", "must be 1 to 64 of A-Z a-z 0-9 _ -", "new_session");
    return get_text(d, "title", PROTOCOL_TITLE_BYTES, &d->m->title);
}

static int decode_keys(struct decoder *d, const char *text) {
    struct message *m = d->m;
    switch (m->type) {
    case MESSAGE_HELLO:
        return get_string(d, "token", &m->token);
    case MESSAGE_PING:
    case MESSAGE_SESSIONS_WATCH:
        return 0;
    case MESSAGE_SESSION_OPEN:
        return decode_open(d, text);
    case MESSAGE_SESSION_ATTACH:
        TRY(get_session(d, true));
        return get_int(d, "after", 0, (int64_t)1 << 53, &m->after);
    case MESSAGE_SESSION_DETACH:
    case MESSAGE_SESSION_TYPING:
    case MESSAGE_SESSION_EXPORT:
        return get_session(d, true);
    case MESSAGE_SESSION_GET:
        return decode_get(d);
    case MESSAGE_SESSION_LIST:
        return decode_list(d);
    case MESSAGE_SESSION_UPDATE:
        return decode_update(d, text);
    case MESSAGE_SESSION_CLOSE:
        TRY(get_session(d, true));
        return get_bool(d, "delete", &m->delete_it);
    case MESSAGE_TURN_START:
        return decode_start(d, text);
    case MESSAGE_TURN_CANCEL:
        TRY(get_session(d, true));
        TRY(get_bool(d, "replay", &m->replay));
        return get_int(d, "turn", 0, (int64_t)1 << 53, &m->turn);
    case MESSAGE_TURN_GET:
    case MESSAGE_TURN_REPLAY:
        TRY(get_session(d, true));
        TRY(get_int(d, "turn", 0, (int64_t)1 << 53, &m->turn));
        return m->turn < 0 ? bad(d, "bad_message", "is missing", "turn") : 0;
    case MESSAGE_SESSION_EVENTS:
        TRY(get_session(d, true));
        TRY(get_int(d, "last", 0, PROTOCOL_TURNS_MAX, &m->last));
        return get_int(d, "before", 0, (int64_t)1 << 53, &m->before);
    case MESSAGE_SESSION_REWIND:
        return decode_rewind(d);
    case MESSAGE_SESSION_FORK:
        return decode_fork(d);
    case MESSAGE_TURN_REGENERATE:
        return decode_regenerate(d, text);
    case MESSAGE_SESSION_IMPORT:
        TRY(get_string(d, "archive", &m->archive));
        return m->archive ? 0 : bad(d, "bad_message", "is missing", "archive");
    }
    return 0;
}

static int decode_envelope(struct decoder *d) {
    const char *type = NULL, *request_id = NULL;
    TRY(get_string(d, "request_id", &request_id));
    if (request_id) {
        if (strlen(request_id) > SESSION_REQUEST_ID_MAX)
            return bad(d, "bad_message", "is longer than 128 bytes", "request_id");
        strcpy(d->m->request_id, request_id);
    }
    TRY(get_string(d, "type", &type));
    if (!type) return bad(d, "bad_message", "is missing", "type");
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(types[i].name, type) == 0) {
            d->m->type = types[i].type;
            return 0;
        }
    *d->code = "unknown_type";
    return err_set(d->err, E_INVAL, "there is no message of type '%.64s'", type);
}

int message_decode(struct message *m, const char *text, size_t len,
                   const struct json_limits *limits, const char **code, struct err *err) {
    struct decoder d = {m, NULL, code, err};
    memset(m, 0, sizeof(*m));
    m->after = m->before = m->turn = m->cancel_after_ms = -1;
    m->last = 100;
    m->limit = 50;
    *code = "internal";
    m->json = json_parse(text, len, limits, err);
    if (!m->json) {
        *code = err->code == E_NOMEM ? "internal" : "bad_json";
        return err->code;
    }
    d.json = m->json;
    if (!cJSON_IsObject(d.json)) {
        *code = "bad_message";
        return err_set(err, E_INVAL, "a message is a JSON object");
    }
    TRY(decode_envelope(&d));
    int rc = decode_keys(&d, text);
    return rc < 0 ? rc : 0;
}

void message_glance(const char *text, size_t len, char request_id[SESSION_REQUEST_ID_MAX + 1]) {
    struct json_limits limits = json_limits_message;
    const char *found = NULL;
    request_id[0] = '\0';
    limits.max_bytes = PROTOCOL_GLANCE_BYTES;
    cJSON *json = json_parse(text, len, &limits, NULL);
    if (!cJSON_IsObject(json) || json_get_string(json, "request_id", &found, NULL) != JSON_PRESENT)
        found = "";
    if (strlen(found) <= SESSION_REQUEST_ID_MAX) strcpy(request_id, found);
    cJSON_Delete(json);
}

void message_release(struct message *m) {
    cJSON_Delete(m->json);
    free(m->sampling_text);
    free(m->ids);
    m->json = NULL;
    m->sampling_text = NULL;
    m->ids = NULL;
}
