// Plain data of a conversation: copies, release, sizes. See record.h.
#include "sessions/store/record.h"
#include "base/err.h"
#include "base/utf8.h"
#include "sessions/store/columns.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const turn_finish_names[N_TURN_FINISHES] = {
    "eos", "stop", "length", "cancelled", "deadline", "error", "interrupted"};

void record_instance(char out[RECORD_INSTANCE_MAX], const struct engine_info *info) {
    // A template's file without its folder, which is private and differs between machines.
    const char *template = info->chat_template ? info->chat_template : "none";
    const char *slash = strrchr(template, '/');
    snprintf(out, RECORD_INSTANCE_MAX,
             "%.200s" RECORD_INSTANCE_SEPARATOR "%.32s weights, %s cache, template %.128s",
             info->backend, info->weight_dtype ? info->weight_dtype : "unknown",
             engine_kv_dtype_name(info->kv_dtype), slash ? slash + 1 : template);
}

// Whether `part` stands among the parts of a backend's description, which commas separate.
static bool describes(const char *description, size_t n, const char *part) {
    size_t n_part = strlen(part);
    for (const char *at = description; (at = strstr(at, part)) != NULL; at += n_part) {
        const char *end = at + n_part;
        if (end > description + n) return false;
        if (at - description >= 2 && !memcmp(at - 2, ", ", 2) &&
            (end == description + n || *end == ',' || *end == ' ')) // " on 2 ranks"
            return true;
    }
    return false;
}

const char *record_compute_dtype(const char *instance) {
    static const char *const on_gpu[] = {"f32", "bf16", "f16"};
    if (!instance) return NULL;
    const char *end = strstr(instance, RECORD_INSTANCE_SEPARATOR);
    size_t n = end ? (size_t)(end - instance) : strlen(instance);
    if (!strncmp(instance, "cpu: ", 5))
        return describes(instance, n, "products of bf16") ? "bf16" : "f32";
    for (size_t i = 0; !strncmp(instance, "cuda: ", 6) && i < 3; i++)
        if (describes(instance, n, on_gpu[i])) return on_gpu[i];
    return NULL;
}

bool session_id_valid(const char *id) {
    size_t n = strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-");
    return n > 0 && n <= SESSION_ID_MAX && id[n] == '\0';
}

static unsigned code_point(const char *s, size_t n) {
    unsigned code = (unsigned char)s[0] & (n == 1 ? 0x7fu : 0xffu >> (n + 1));
    for (size_t i = 1; i < n; i++) code = code << 6 | ((unsigned char)s[i] & 0x3fu);
    return code;
}

// Control characters, line ends, and marks that turn the direction of what follows: a name with
// these would change the list around it.
static bool is_control(unsigned c) {
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0x2028 && c <= 0x202e) ||
           (c >= 0x2066 && c <= 0x2069);
}

// Spaces and what shows nothing by itself. Between others it may stand: joiners belong to words and
// to emoji.
static bool is_blank(unsigned c) {
    static const unsigned single[] = {' ',    0xa0,   0xad,   0x034f, 0x061c, 0x115f,
                                      0x1160, 0x1680, 0x180e, 0x202f, 0x205f, 0x2800,
                                      0x3000, 0x3164, 0xfeff, 0xffa0};
    for (size_t i = 0; i < sizeof single / sizeof *single; i++)
        if (c == single[i]) return true;
    return (c >= 0x2000 && c <= 0x200f) || (c >= 0x2060 && c <= 0x206f) ||
           (c >= 0xfe00 && c <= 0xfe0f) || (c >= 0xe0000 && c <= 0xe0fff);
}

bool session_folder_valid(const char *name) {
    size_t len = strnlen(name, 4 * SESSION_FOLDER_CHARS + 1), n = 0;
    bool valid = true, shown = false;
    for (size_t at = 0; at < len; n++) {
        size_t step = utf8_next(name + at, len - at, &valid);
        unsigned c = valid ? code_point(name + at, step) : 0;
        if (!valid || is_control(c)) return false;
        shown |= !is_blank(c);
        at += step;
    }
    return shown && n <= SESSION_FOLDER_CHARS;
}

void session_record_release(struct session_record *r) {
    columns_release(&record_tables[TABLE_SESSIONS], r);
    *r = (struct session_record){0};
}

int session_record_copy(struct session_record *to, const struct session_record *from) {
    *to = *from;
    int rc = columns_own(&record_tables[TABLE_SESSIONS], to);
    if (rc < 0) session_record_release(to);
    return rc;
}

// Ids and log-probabilities take 8 bytes, ends and text of an average token as much again.
#define TOKEN_BYTES 16

int64_t session_bytes(const struct session_record *r) {
    int64_t table = r->prompt_task ? 0 : r->prompt_rows * r->prompt_width * (int64_t)sizeof(float);
    int64_t texts =
        (r->system ? (int64_t)strlen(r->system) : 0) + (r->note ? (int64_t)strlen(r->note) : 0);
    return 1024 + texts + table;
}

int record_prompt_make(const struct session_record *r, struct prompt **out, struct err *err) {
    enum prompt_kind kind = r->prompt_kind == RECORD_PROMPT_PREFIX ? PROMPT_PREFIX : PROMPT_ROWS;
    struct err why = {0};
    *out = NULL;
    if (!r->prompt_data || r->prompt_rows < 1 || r->prompt_width < 1 ||
        r->prompt_bytes / sizeof(float) / (size_t)r->prompt_rows != (size_t)r->prompt_width ||
        r->prompt_bytes % (sizeof(float) * (size_t)r->prompt_rows))
        return err_set(err, E_CORRUPT, "session.prompt_data is not the table that it is to be");
    int rc = prompt_new(out, kind, r->prompt_rows, r->prompt_width, r->prompt_data, &why);
    if (rc == E_NOMEM) return err_set(err, rc, "%s", why.text);
    if (rc < 0) return err_set(err, E_CORRUPT, "session.prompt_data: %s", why.text);
    if (r->prompt_hash && strcmp((*out)->digits, r->prompt_hash) == 0) return 0;
    prompt_free(*out);
    *out = NULL;
    return err_set(err, E_CORRUPT, "session.prompt_data is another table than prompt_hash says");
}

int record_prompt_find(const struct session_record *r, const struct engine_info *info,
                       const struct prompt *own, const struct prompt **out, struct err *err) {
    *out = NULL;
    if (!r->prompt_hash) return 0;
    if (!r->prompt_task) {
        *out = own;
        return own ? 0
                   : err_set(err, E_UNSUPPORTED,
                             "the session's table of virtual tokens is missing or damaged in the "
                             "database");
    }
    *out = prompt_task_table(info->prompt_tasks, info->n_prompt_tasks,
                             r->prompt_hash); // its name may be another one here
    if (*out) return 0;
    const struct prompt_task *task =
        prompt_task_find(info->prompt_tasks, info->n_prompt_tasks, r->prompt_task);
    if (task)
        return err_set(err, E_UNSUPPORTED,
                       "the session was made with another table of the prompt task '%s' (%.12s) "
                       "than is served now (%.12s)",
                       r->prompt_task, r->prompt_hash, task->prompt->digits);
    return err_set(err, E_UNSUPPORTED,
                   "the session was made with the prompt task '%s', which is not served: see "
                   "prompt_tasks",
                   r->prompt_task);
}

void record_prompt_describe(struct session_record *r, const struct prompt *p, bool *failed) {
    r->prompt_kind = p->kind == PROMPT_PREFIX ? RECORD_PROMPT_PREFIX : RECORD_PROMPT_ROWS;
    r->prompt_rows = p->n_rows;
    r->prompt_width = p->width;
    r->prompt_hash = record_strdup(p->digits, failed);
}

int64_t turn_bytes(const struct turn_record *r) {
    int64_t alternatives = (int64_t)sizeof(struct engine_alternative) * r->n_alternatives;
    int64_t request = r->request ? (int64_t)strlen(r->request) : 0;
    if (r->shown) request += (int64_t)strlen(r->shown);
    return 512 + request + (int64_t)r->input_text_len + TOKEN_BYTES * (r->n_input + r->n_output) +
           alternatives * r->n_output;
}

bool turn_was_edited(const struct turn_record *r) {
    return r->branch && (strncmp(r->branch, RECORD_EDITED, sizeof RECORD_EDITED - 1) == 0 ||
                         strcmp(r->branch, RECORD_WRITTEN) == 0);
}

bool turn_was_erased(const struct turn_record *r) {
    return strcmp(r->error_code, RECORD_ERASED) == 0;
}

void turn_record_release(struct turn_record *r) {
    columns_release(&record_tables[TABLE_TURNS], r);
    *r = (struct turn_record){0};
}

int turn_record_copy(struct turn_record *to, const struct turn_record *from) {
    *to = *from;
    int rc = columns_own(&record_tables[TABLE_TURNS], to);
    if (rc < 0) turn_record_release(to);
    return rc;
}

void turn_forget_words(struct turn_record *r) {
    columns_forget(&record_tables[TABLE_TURNS], r);
}

int token_run_copy(struct token_run *to, const struct token_run *from, size_t n_alternatives) {
    bool failed = false;
    size_t n = from->n;
    *to = *from;
    to->ids = record_memdup(from->ids, n * sizeof *from->ids, &failed);
    to->logprobs = record_memdup(from->logprobs, n * sizeof *from->logprobs, &failed);
    to->text_ends = record_memdup(from->text_ends, n * sizeof *from->text_ends, &failed);
    to->alternatives =
        record_memdup(from->alternatives, n * n_alternatives * sizeof *from->alternatives, &failed);
    to->text = record_memdup(from->text, from->text_len, &failed);
    if (!failed) return 0;
    token_run_release(to);
    return E_NOMEM;
}

void token_run_release(struct token_run *r) {
    columns_release(&record_tables[TABLE_TOKENS], r);
    *r = (struct token_run){0};
}

int64_t stored_session_bytes(const struct stored_session *s) {
    int64_t bytes = session_bytes(&s->rec);
    for (size_t i = 0; i < s->n_turns; i++) {
        struct turn_record r = s->turns[i].rec;
        r.n_output = (int64_t)s->turns[i].tokens.n;
        bytes += turn_bytes(&r);
    }
    return bytes;
}

void stored_session_free(struct stored_session *s) {
    if (!s) return;
    session_record_release(&s->rec);
    prompt_free(s->prompt);
    for (size_t i = 0; i < s->n_origins; i++) free(s->origins[i]);
    for (size_t i = 0; i < s->n_turns; i++) {
        turn_record_release(&s->turns[i].rec);
        token_run_release(&s->turns[i].tokens);
    }
    free(s->turns);
    free(s->events);
    free(s);
}
