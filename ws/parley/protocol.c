// Decoding: one JSON text to one struct message. This file checks each value's type and range. The
// session service checks what only it knows: owners, room, models.
#include "ws/parley/protocol.h"
#include "sessions/store/record.h"
#include <stdlib.h>
#include <string.h>

#define NUMBER_MAX ((int64_t)1 << 53) // of turns and events

struct decoder {
    struct message *m;
    struct request *r; // m's
    const cJSON *json;
    int32_t n_vocab;
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

// Left out or null: FLAG_ANY.
static int get_flag(struct decoder *d, const char *key, enum record_flag *out) {
    bool on = false;
    TRY(get_bool(d, key, &on));
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(d->json, key);
    if (v && !cJSON_IsNull(v)) *out = on ? FLAG_ON : FLAG_OFF;
    return 0;
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
    return get_int(d, key, 0, NUMBER_MAX, out);
}

// The id of a session; *out stays NULL where it is left out.
static int get_session(struct decoder *d, const char *key, const char **out) {
    TRY(get_string(d, key, out));
    if (!*out || session_id_valid(*out)) return 0;
    return bad(d, "invalid", "must be 1 to 64 of A-Z a-z 0-9 _ -", key);
}

// "finish", or {"cancel_after_ms": N}.
static int get_on_disconnect(struct decoder *d) {
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(d->json, "on_disconnect");
    const char *how = cJSON_GetStringValue(v);
    if (!v || cJSON_IsNull(v)) return 0;
    if (how && strcmp(how, "finish") == 0) {
        d->r->cancel_after_ms = 0;
        return 0;
    }
    if (!cJSON_IsObject(v))
        return bad(d, how ? "invalid" : "bad_message", "is \"finish\" or {\"cancel_after_ms\": N}",
                   "on_disconnect");
    const cJSON *ms = cJSON_GetObjectItemCaseSensitive(v, "cancel_after_ms");
    int rc = json_get_int(v, "cancel_after_ms", 1, SESSION_CANCEL_AFTER_MAX_MS,
                          &d->r->cancel_after_ms, d->err);
    if (rc < 0) return fail(d, cJSON_IsNumber(ms) ? "invalid" : "bad_message", rc);
    return ms ? 0 : bad(d, "bad_message", "needs cancel_after_ms", "on_disconnect");
}

static int get_sampling(struct decoder *d) {
    const cJSON *object = NULL;
    int rc = json_get_object(d->json, "sampling", &object, d->err);
    if (rc < 0) return fail(d, "bad_message", rc);
    if (!object) return 0;
    d->m->sampling = malloc(sizeof(*d->m->sampling));
    if (!d->m->sampling)
        return fail(d, "internal", err_set(d->err, E_NOMEM, "no memory for 'sampling'"));
    turn_sampling_init(d->m->sampling);
    d->r->sampling = d->m->sampling;
    rc = sampling_json_read(d->m->sampling, object, d->n_vocab, d->err);
    return rc < 0 ? fail(d, "invalid", rc) : 0;
}

// --- requests ---

static int decode_open(struct decoder *d) {
    struct request *r = d->r;
    TRY(get_string(d, "model", &r->open.model));
    TRY(get_int(d, "session_len", 1, INT32_MAX, &r->open.session_len));
    TRY(get_int(d, "memory_len", 1, INT32_MAX, &r->open.memory_len));
    TRY(get_int(d, "sink_len", 0, INT32_MAX, &r->open.sink_len));
    TRY(get_text(d, "system", PROTOCOL_SYSTEM_BYTES, &r->open.system));
    TRY(get_text(d, "title", PROTOCOL_TITLE_BYTES, &r->title));
    TRY(get_text(d, "prompt_task", PROMPT_NAME_MAX, &r->open.prompt_task));
    TRY(get_sampling(d));
    return get_on_disconnect(d);
}

static int decode_ids(struct decoder *d, const cJSON *array) {
    size_t n;
    int rc = json_copy_ids(array, "input.ids", &d->m->ids, &n, d->err);
    if (rc == E_NOMEM) return fail(d, "internal", rc);
    if (rc < 0) return fail(d, rc == E_LIMIT ? "invalid" : "bad_message", rc);
    d->r->input = (struct turn_input){.kind = INPUT_IDS, .ids = d->m->ids, .n_ids = n};
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
        d->r->input = (struct turn_input){.kind = INPUT_CONTINUE};
        return 0;
    }
    if (ids) return decode_ids(d, ids);
    const char *text = content ? content : raw;
    d->r->input = (struct turn_input){
        .kind = content ? INPUT_CONTENT : INPUT_TEXT, .text = text, .text_len = strlen(text)};
    return 0;
}

static int decode_attach(struct decoder *d) {
    return get_int(d, "after", 0, NUMBER_MAX, &d->r->after);
}

static int decode_get(struct decoder *d) {
    TRY(get_bool(d, "attach", &d->r->attach));
    TRY(get_int(d, "last", 0, PROTOCOL_TURNS_MAX, &d->r->last));
    TRY(get_int(d, "before", 0, NUMBER_MAX, &d->r->before));
    // An attached client gets what follows the newest turn: a page of older ones has no such end.
    if (d->r->before >= 0 && d->r->attach)
        return bad(d, "bad_message", "does not go together with 'attach'", "before");
    return 0;
}

static int decode_list(struct decoder *d) {
    TRY(get_text(d, "query", 1024, &d->r->list.query));
    TRY(get_string(d, "forked_from", &d->r->list.forked_from));
    TRY(get_text(d, "cursor", 256, &d->r->list.cursor));
    TRY(get_flag(d, "pinned", &d->r->pinned));
    TRY(get_flag(d, "archived", &d->r->archived));
    TRY(get_flag(d, "in_folder", &d->r->in_folder));
    return get_int(d, "limit", 1, PROTOCOL_LIST_MAX, &d->r->limit);
}

static int decode_update(struct decoder *d) {
    TRY(get_text(d, "title", PROTOCOL_TITLE_BYTES, &d->r->title));
    TRY(get_flag(d, "pinned", &d->r->pinned));
    TRY(get_flag(d, "archived", &d->r->archived));
    TRY(get_string(d, "folder", &d->r->folder));
    TRY(get_on_disconnect(d));
    return get_sampling(d);
}

static int decode_share(struct decoder *d) {
    d->r->share = FLAG_ON;
    return 0;
}

static int decode_unshare(struct decoder *d) {
    d->r->share = FLAG_OFF;
    return 0;
}

static int decode_close(struct decoder *d) {
    return get_bool(d, "delete", &d->r->close.delete_it);
}

static int decode_start(struct decoder *d) {
    TRY(decode_input(d));
    d->r->attach = true;
    TRY(get_turn(d, "after", &d->r->turn));
    TRY(get_sampling(d));
    return get_bool(d, "queue", &d->r->start.queue);
}

static int decode_cancel(struct decoder *d) {
    TRY(get_bool(d, "replay", &d->r->cancel.replay));
    return get_int(d, "turn", 0, NUMBER_MAX, &d->r->turn);
}

static int decode_turn(struct decoder *d) {
    TRY(get_int(d, "turn", 0, NUMBER_MAX, &d->r->turn));
    return d->r->turn < 0 ? bad(d, "bad_message", "is missing", "turn") : 0;
}

static int decode_events(struct decoder *d) {
    TRY(get_int(d, "last", 0, PROTOCOL_TURNS_MAX, &d->r->last));
    return get_int(d, "before", 0, NUMBER_MAX, &d->r->before);
}

static int decode_rewind(struct decoder *d) {
    TRY(get_turn(d, "turn", &d->r->turn));
    if (d->r->turn == TURN_HEAD) return bad(d, "bad_message", "is missing", "turn");
    return get_bool(d, "leaf", &d->r->leaf);
}

static int decode_regenerate(struct decoder *d) {
    d->r->attach = true;
    TRY(get_turn(d, "turn", &d->r->turn));
    if (d->r->turn == TURN_NONE)
        return bad(d, "bad_message", "must be the number of a turn", "turn");
    return get_sampling(d);
}

static int decode_edit(struct decoder *d) {
    const char *text = NULL;
    TRY(decode_turn(d));
    TRY(get_string(d, "text", &text));
    if (!text) return bad(d, "bad_message", "is missing", "text");
    d->r->input = (struct turn_input){.kind = INPUT_TEXT, .text = text, .text_len = strlen(text)};
    return 0;
}

static int decode_write(struct decoder *d) {
    struct turn_input *in = &d->r->input;
    TRY(get_turn(d, "after", &d->r->turn));
    TRY(decode_input(d));
    if (in->kind != INPUT_CONTENT) return bad(d, "bad_message", "must hold content", "input");
    TRY(get_string(d, "text", &in->answer));
    if (!in->answer) return bad(d, "bad_message", "is missing", "text");
    in->answer_len = strlen(in->answer);
    return get_int(d, "created_ms", 1, NUMBER_MAX, &d->r->write.created_ms);
}

static int decode_outline(struct decoder *d) {
    TRY(get_int(d, "from", 0, NUMBER_MAX, &d->r->after));
    return get_int(d, "limit", 1, PROTOCOL_LIST_MAX, &d->r->limit);
}

static int decode_fork(struct decoder *d) {
    TRY(get_turn(d, "turn", &d->r->turn));
    TRY(get_session(d, "new_session", &d->r->fork.new_session));
    return get_text(d, "title", PROTOCOL_TITLE_BYTES, &d->r->title);
}

static int decode_import(struct decoder *d) {
    TRY(get_string(d, "archive", &d->r->import.archive));
    if (!d->r->import.archive) return bad(d, "bad_message", "is missing", "archive");
    d->r->import.archive_len = strlen(d->r->import.archive);
    TRY(get_int(d, "at", 0, NUMBER_MAX, &d->m->at));
    return get_bool(d, "more", &d->m->more);
}

static int decode_usage(struct decoder *d) {
    return get_bool(d, "owners", &d->m->owners);
}

static int decode_hello(struct decoder *d) {
    return get_string(d, "token", &d->m->token);
}

// --- messages ---

enum names_session { NAMES_NONE, MAY_NAME, MUST_NAME };
static const struct row {
    const char *name;
    enum message_type type;
    enum request_kind kind;
    enum names_session session;
    int (*decode)(struct decoder *d); // NULL: no further keys
} rows[] = {
    {"hello", MESSAGE_HELLO, 0, NAMES_NONE, decode_hello},
    {"ping", MESSAGE_PING, 0, NAMES_NONE, NULL},
    {"sessions.watch", MESSAGE_WATCH, 0, NAMES_NONE, NULL},
    {"usage.get", MESSAGE_USAGE, 0, NAMES_NONE, decode_usage},
    {"session.open", MESSAGE_REQUEST, REQUEST_OPEN, MAY_NAME, decode_open},
    {"session.attach", MESSAGE_REQUEST, REQUEST_ATTACH, MUST_NAME, decode_attach},
    {"session.detach", MESSAGE_REQUEST, REQUEST_DETACH, MUST_NAME, NULL},
    {"session.typing", MESSAGE_REQUEST, REQUEST_TYPING, MUST_NAME, NULL},
    {"session.get", MESSAGE_REQUEST, REQUEST_GET, MUST_NAME, decode_get},
    {"session.list", MESSAGE_REQUEST, REQUEST_LIST, NAMES_NONE, decode_list},
    {"session.update", MESSAGE_REQUEST, REQUEST_UPDATE, MUST_NAME, decode_update},
    {"session.share", MESSAGE_REQUEST, REQUEST_UPDATE, MUST_NAME, decode_share},
    {"session.unshare", MESSAGE_REQUEST, REQUEST_UPDATE, MUST_NAME, decode_unshare},
    {"session.close", MESSAGE_REQUEST, REQUEST_CLOSE, MUST_NAME, decode_close},
    {"turn.start", MESSAGE_REQUEST, REQUEST_START, MUST_NAME, decode_start},
    {"turn.cancel", MESSAGE_REQUEST, REQUEST_CANCEL, MUST_NAME, decode_cancel},
    {"turn.get", MESSAGE_REQUEST, REQUEST_TURN, MUST_NAME, decode_turn},
    {"turn.replay", MESSAGE_REQUEST, REQUEST_REPLAY, MUST_NAME, decode_turn},
    {"session.events", MESSAGE_REQUEST, REQUEST_EVENTS, MUST_NAME, decode_events},
    {"session.rewind", MESSAGE_REQUEST, REQUEST_REWIND, MUST_NAME, decode_rewind},
    {"session.fork", MESSAGE_REQUEST, REQUEST_FORK, MUST_NAME, decode_fork},
    {"turn.regenerate", MESSAGE_REQUEST, REQUEST_REGENERATE, MUST_NAME, decode_regenerate},
    {"turn.edit", MESSAGE_REQUEST, REQUEST_EDIT, MUST_NAME, decode_edit},
    {"turn.write", MESSAGE_REQUEST, REQUEST_WRITE, MUST_NAME, decode_write},
    {"turn.delete", MESSAGE_REQUEST, REQUEST_ERASE, MUST_NAME, decode_turn},
    {"session.outline", MESSAGE_REQUEST, REQUEST_OUTLINE, MUST_NAME, decode_outline},
    {"session.export", MESSAGE_REQUEST, REQUEST_EXPORT, MUST_NAME, NULL},
    {"session.import", MESSAGE_REQUEST, REQUEST_IMPORT, NAMES_NONE, decode_import},
};

static int decode_request_id(struct decoder *d) {
    const char *request_id = NULL;
    TRY(get_string(d, "request_id", &request_id));
    if (!request_id) return 0;
    if (strlen(request_id) > SESSION_REQUEST_ID_MAX)
        return bad(d, "bad_message", "is longer than 128 bytes", "request_id");
    strcpy(d->r->request_id, request_id);
    return 0;
}

static int find_row(struct decoder *d, const struct row **row) {
    const char *type = NULL;
    TRY(get_string(d, "type", &type));
    if (!type) return bad(d, "bad_message", "is missing", "type");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (strcmp(rows[i].name, type) == 0) {
            *row = &rows[i];
            return 0;
        }
    *d->code = "unknown_type";
    return err_set(d->err, E_INVAL, "there is no message of type '%.64s'", type);
}

// The defaults of a kind; the request keeps its id.
static void set_kind(struct request *r, enum request_kind kind) {
    struct request of_kind;
    request_init(&of_kind, kind);
    memcpy(of_kind.request_id, r->request_id, sizeof r->request_id);
    *r = of_kind;
}

static int decode(struct decoder *d) {
    const struct row *row = NULL;
    TRY(decode_request_id(d));
    TRY(find_row(d, &row));
    d->m->type = row->type;
    set_kind(d->r, row->kind);
    if (row->session != NAMES_NONE) TRY(get_session(d, "session", &d->r->session));
    if (row->session == MUST_NAME && !d->r->session)
        return bad(d, "bad_message", "is missing", "session");
    int rc = row->decode ? row->decode(d) : 0;
    return rc < 0 ? rc : 0;
}

int message_decode(struct message *m, const char *text, size_t len,
                   const struct json_limits *limits, int32_t n_vocab, const char **code,
                   struct err *err) {
    struct decoder d = {m, &m->request, NULL, n_vocab, code, err};
    memset(m, 0, sizeof(*m));
    request_init(&m->request, REQUEST_OPEN);
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
    return decode(&d);
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
    turn_sampling_free(m->sampling);
    free(m->ids);
    m->json = NULL;
    m->sampling = NULL;
    m->ids = NULL;
}
