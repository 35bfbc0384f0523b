// Chat templates: finds the form of a model folder's template and writes conversations in it. What
// people typed is noted as plain spans while it is written, so that the tokenizer looks for no
// markup there.
#include "engine/text/chat_template.h"
#include "base/json.h"
#include "engine/text/char_class.h"
#include "engine/text/chat_forms.h"
#include "engine/text/jinja_form.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TEMPLATE_MAX_BYTES (1u << 20) // the longest published ones have 30 kB
#define TEXT_MAX_BYTES (64u << 20)

struct chat_template {
    const struct chat_form *form;
    const struct tokenizer *tokenizer;
    char *own_default; // the default system prompt that the template itself names; or NULL
    const char *default_system;
    char end_text[256]; // of the end-of-turn token
    int32_t end_of_turn;
};

// --- opening
// ----------------------------------------------------------------------------------------------

static int recognise(struct chat_template *c, const char *text, size_t len, const char *where,
                     struct err *err) {
    struct jinja_form form;
    int rc = jinja_form_read(&form, text, len);
    if (rc == E_FORMAT)
        err_set(err, rc, "%s: the chat template is not well formed", where);
    else if (rc < 0)
        err_set(err, rc, "%s: no memory to read the chat template", where);
    if (rc == 0 && !(c->form = chat_form_of_fingerprint(form.fingerprint)))
        rc = err_set(err, E_UNSUPPORTED,
                     "%s: the chat template (normal form %016llx) is none of the known ones; name "
                     "the form it has, if it "
                     "is one of %s",
                     where, (unsigned long long)form.fingerprint, chat_template_names());
    if (rc == 0 && form.default_system.len > 0 &&
        !(c->own_default = buf_take(&form.default_system, NULL)))
        rc = err_set(err, E_NOMEM, "%s: no memory for the default system prompt", where);
    jinja_form_release(&form);
    return rc;
}

// E_NOTFOUND leaves *err to the caller, who may know another place to look.
static int open_file(struct chat_template *c, const char *path, struct err *err) {
    struct buf text;
    struct err why = {0};
    int rc = buf_read_file(&text, path, TEMPLATE_MAX_BYTES, &why);
    if (rc < 0 && rc != E_NOTFOUND) err_set(err, rc, "%s", why.text);
    if (rc == 0) rc = recognise(c, buf_z(&text), text.len, path, err);
    buf_release(&text);
    return rc;
}

// chat_template of tokenizer_config.json: a string, or a list of {"name", "template"} of which
// "default" is meant.
static const char *template_in(const cJSON *config) {
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(config, "chat_template"), *item;
    if (cJSON_IsString(value)) return value->valuestring;
    cJSON_ArrayForEach(item, value) {
        const cJSON *name = cJSON_GetObjectItemCaseSensitive(item, "name");
        const cJSON *text = cJSON_GetObjectItemCaseSensitive(item, "template");
        if (cJSON_IsString(name) && strcmp(name->valuestring, "default") == 0 &&
            cJSON_IsString(text))
            return text->valuestring;
    }
    return NULL;
}

static int open_config(struct chat_template *c, const char *path, struct err *err) {
    struct err why = {0};
    cJSON *config = json_parse_file(path, &json_limits_file, &why);
    if (!config)
        return why.code == E_NOTFOUND ? E_NOTFOUND : err_set(err, why.code, "%s", why.text);
    const char *text = template_in(config);
    int rc = text ? recognise(c, text, strlen(text), path, err) : E_NOTFOUND;
    cJSON_Delete(config);
    return rc;
}

static int open_folder(struct chat_template *c, const char *model_dir, struct err *err) {
    static const char *const names[] = {"chat_template.jinja", "tokenizer_config.json"};
    char path[4096];
    for (int i = 0; i < 2; i++) {
        if (snprintf(path, sizeof path, "%s/%s", model_dir, names[i]) >= (int)sizeof path)
            return err_set(err, E_INVAL, "the model folder's name is too long");
        int rc = i == 0 ? open_file(c, path, err) : open_config(c, path, err);
        if (rc != E_NOTFOUND) return rc;
    }
    return err_set(err, E_NOTFOUND, "%s has no chat template", model_dir);
}

static int open_override(struct chat_template *c, const char *override, struct err *err) {
    c->form = chat_form_named(override);
    if (c->form) return 0;
    int rc = open_file(c, override, err);
    if (rc != E_NOTFOUND) return rc;
    return err_set(err, E_NOTFOUND, "'%.100s' is neither a file nor one of the known forms: %s",
                   override, chat_template_names());
}

static void find_end_of_turn(struct chat_template *c) {
    const char *text = c->form->end_of_turn;
    if (strcmp(text, FORM_EOS) == 0) text = tokenizer_eos(c->tokenizer);
    snprintf(c->end_text, sizeof c->end_text, "%s", text);
    c->end_of_turn = *text ? tokenizer_find(c->tokenizer, text) : -1;
}

int chat_template_open(struct chat_template **out, const char *model_dir, const char *override,
                       const struct tokenizer *t, struct err *err) {
    *out = NULL;
    struct chat_template *c = calloc(1, sizeof *c);
    if (!c) return err_set(err, E_NOMEM, "no memory for a chat template");
    c->tokenizer = t;
    int rc = override ? open_override(c, override, err) : open_folder(c, model_dir, err);
    if (rc < 0) {
        chat_template_close(c);
        return rc;
    }
    c->default_system = c->own_default ? c->own_default : c->form->default_system;
    find_end_of_turn(c);
    *out = c;
    return 0;
}

void chat_template_close(struct chat_template *c) {
    if (!c) return;
    free(c->own_default);
    free(c);
}

const char *chat_template_name(const struct chat_template *c) {
    return c->form->name;
}

const char *chat_template_names(void) {
    return chat_form_names();
}

int32_t chat_template_end_of_turn(const struct chat_template *c) {
    return c->end_of_turn;
}

// --- writing
// ----------------------------------------------------------------------------------------------

enum role { ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT };

struct message {
    enum role role;
    const char *s;
    size_t len;
};
struct writer {
    const struct chat_template *c;
    const struct chat_form *form;
    const struct message *messages;
    size_t n;
    struct buf text;
    struct text_span *plain; // room for four in each message
    size_t n_plain;
    size_t behind_second; // where the text behind the second message's words begins
};

// Python's str.strip() takes the separators U+001C to U+001F too.
static bool is_strippable(uint32_t c) {
    return char_is_space(c) || (c >= 0x1c && c <= 0x1f);
}

static void trim_end(const char *s, size_t *len) {
    for (const char *start; *len && is_strippable(char_decode_back(s + *len, &start));)
        *len = (size_t)(start - s);
}

static void trim(const char **s, size_t *len) {
    while (*len && is_strippable(char_decode(*s))) {
        size_t n = char_utf8_len(*s);
        *s += n;
        *len -= n;
    }
    trim_end(*s, len);
}

static void put_date(struct buf *b) {
    char date[32];
    struct tm tm;
    time_t now = time(NULL);
    localtime_r(&now, &tm);
    // Not strftime's %b: month names must not follow the locale.
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    snprintf(date, sizeof date, "%02d %.3s %d", tm.tm_mday, months + 3 * tm.tm_mon,
             tm.tm_year + 1900);
    buf_addz(b, date);
}

static void put_fixed(struct writer *w, const char *s) {
    for (; *s; s++) {
        if (*s == *FORM_BOS)
            buf_addz(&w->text, tokenizer_bos(w->c->tokenizer));
        else if (*s == *FORM_EOS)
            buf_addz(&w->text, tokenizer_eos(w->c->tokenizer));
        else if (*s == *FORM_DATE)
            put_date(&w->text);
        else
            buf_addc(&w->text, *s);
    }
}

static void put_plain(struct writer *w, const char *s, size_t len) {
    w->plain[w->n_plain++] = (struct text_span){w->text.len, w->text.len + len};
    buf_add(&w->text, s, len);
}

static void put_words(struct writer *w, const struct message *m, unsigned trim_flag) {
    const char *s = m->s;
    size_t len = m->len;
    if (w->form->flags & trim_flag) trim(&s, &len);
    put_plain(w, s, len);
}

// What reasoning an assistant's message holds and what follows it, as Qwen3's and GLM's templates
// take it apart.
struct thought {
    const char *s, *rest;
    size_t len, rest_len;
};

static void strip_newlines(const char **s, size_t *len, bool front, bool back) {
    for (; front && *len && **s == '\n'; ++*s) --*len;
    while (back && *len && (*s)[*len - 1] == '\n') --*len;
}

static struct thought split_thought(const struct message *m) {
    static const char open[] = "<think>", close[] = "</think>";
    struct thought t = {.rest = m->s, .rest_len = m->len, .s = ""};
    const char *end = m->s + m->len, *at = memmem(m->s, m->len, close, 8), *from = m->s;
    if (!at) return t;
    t.len = (size_t)(at - m->s);
    strip_newlines(&from, &t.len, false, true);
    for (const char *o; (o = memmem(from, t.len, open, 7)); from = o + 7)
        t.len -= (size_t)(o + 7 - from);
    t.s = from;
    strip_newlines(&t.s, &t.len, true, false);
    for (; at; at = memmem(t.rest, t.rest_len, close, 8)) {
        t.rest = at + 8;
        t.rest_len = (size_t)(end - t.rest);
    }
    return t;
}

// The last question's index; -1: none. Qwen3 counts none that is a tool's answer.
static ptrdiff_t last_question(const struct writer *w, bool tools_too) {
    for (size_t i = w->n; i-- > 0;) {
        const struct message *m = &w->messages[i];
        if (m->role != ROLE_USER) continue;
        bool tool = m->len >= 16 && memcmp(m->s, "<tool_response>", 15) == 0 &&
                    memcmp(m->s + m->len - 16, "</tool_response>", 16) == 0;
        if (tools_too || !tool) return (ptrdiff_t)i;
    }
    return -1;
}

static void put_qwen3_answer(struct writer *w, size_t i) {
    struct thought t = split_thought(&w->messages[i]);
    ptrdiff_t question = last_question(w, false);
    bool split = t.rest != w->messages[i].s;
    if (split) strip_newlines(&t.rest, &t.rest_len, true, false);
    if (question >= 0 && (ptrdiff_t)i > question && (i + 1 == w->n || t.len > 0)) {
        strip_newlines(&t.s, &t.len, true, true);
        put_fixed(w, "<think>\n");
        put_plain(w, t.s, t.len);
        put_fixed(w, "\n</think>\n\n");
        strip_newlines(&t.rest, &t.rest_len, true, false);
    }
    put_plain(w, t.rest, t.rest_len);
}

static void put_glm_answer(struct writer *w, size_t i) {
    struct thought t = split_thought(&w->messages[i]);
    bool show = (ptrdiff_t)i > last_question(w, true) && t.len > 0;
    put_fixed(w, "\n<think>");
    if (show) {
        trim(&t.s, &t.len);
        put_plain(w, t.s, t.len);
    }
    put_fixed(w, "</think>");
    trim(&t.rest, &t.rest_len);
    if (t.rest_len > 0) put_fixed(w, "\n");
    put_plain(w, t.rest, t.rest_len);
}

static void put_answer(struct writer *w, size_t i) {
    struct thought t;
    put_fixed(w, w->form->assistant.before);
    switch (w->form->think) {
    case THINK_KEPT:
        put_words(w, &w->messages[i], FORM_TRIM_ASSISTANT);
        break;
    case THINK_CUT:
        t = split_thought(&w->messages[i]);
        put_plain(w, t.rest, t.rest_len);
        break;
    case THINK_QWEN3:
        put_qwen3_answer(w, i);
        break;
    case THINK_GLM:
        put_glm_answer(w, i);
        break;
    }
    if (i == 1) w->behind_second = w->text.len;
    put_fixed(w, w->form->assistant.after);
}

static void put_system(struct writer *w, size_t i) {
    const struct message *m = &w->messages[i];
    const struct chat_form *f = w->form;
    if ((f->flags & FORM_SKIP_EMPTY_SYSTEM) && m->len == 0) return;
    put_fixed(w, i == 0 && f->first_system ? f->first_system : f->system.before);
    put_words(w, m, FORM_TRIM_SYSTEM);
    put_fixed(w, f->system.after);
}

// The system's words at the head of a user's: trimming is of both together.
static void put_system_and_user(struct writer *w, size_t i) {
    const struct chat_form *f = w->form;
    const struct message *system = &w->messages[0], *m = &w->messages[i];
    size_t len = m->len;
    put_fixed(w, f->user.before);
    put_fixed(w, f->system.before);
    put_words(w, system, FORM_TRIM_SYSTEM);
    put_fixed(w, f->system.after);
    if (f->flags & FORM_TRIM_USER) trim_end(m->s, &len);
    if (len == 0 && (f->flags & FORM_TRIM_USER)) trim_end(w->text.data, &w->text.len);
    put_plain(w, m->s, len);
    put_fixed(w, f->user.after);
}

static void put_user(struct writer *w, size_t i) {
    bool has_system = w->messages[0].role == ROLE_SYSTEM;
    if ((w->form->place == SYSTEM_IN_FIRST_USER && has_system && i == 1) ||
        (w->form->place == SYSTEM_IN_LAST_USER && has_system && i + 1 == w->n)) {
        put_system_and_user(w, i);
        return;
    }
    put_fixed(w, w->form->user.before);
    put_words(w, &w->messages[i], FORM_TRIM_USER);
    put_fixed(w, w->form->user.after);
}

// Where the form has the system's words in front of everything.
static void put_front(struct writer *w) {
    const struct chat_form *f = w->form;
    put_fixed(w, f->prefix);
    if (f->place == SYSTEM_GATHERED)
        for (size_t i = w->n; i-- > 0;)
            if (w->messages[i].role == ROLE_SYSTEM) {
                put_words(w, &w->messages[i], FORM_TRIM_SYSTEM);
                break;
            }
    if (!w->c->default_system || w->messages[0].role == ROLE_SYSTEM) return;
    put_fixed(w, f->first_system ? f->first_system : f->system.before);
    put_fixed(w, w->c->default_system);
    put_fixed(w, f->system.after);
}

static int write_all(struct writer *w, bool add_generation_prompt, struct err *err) {
    const struct chat_form *f = w->form;
    bool own_place = f->place == SYSTEM_ANYWHERE || f->place == SYSTEM_FIRST;
    put_front(w);
    for (size_t i = 0; i < w->n; i++) {
        if (w->messages[i].role == ROLE_USER)
            put_user(w, i);
        else if (w->messages[i].role == ROLE_ASSISTANT)
            put_answer(w, i);
        else if (own_place)
            put_system(w, i);
    }
    if (add_generation_prompt)
        put_fixed(w, f->generation);
    else if (f->no_generation)
        put_fixed(w, f->no_generation);
    // put_* ignore the buffer's errors because they stick to it
    return w->text.error ? err_set(err, w->text.error, "the conversation is too long to write") : 0;
}

// --- checking
// ---------------------------------------------------------------------------------------------

static int read_message(const struct chat_message *from, size_t i, struct message *to,
                        struct err *err) {
    static const char *const roles[] = {"system", "user", "assistant"}; // as enum role
    if (!from->role || !from->content)
        return err_set(err, E_INVAL, "message %zu has no role or content", i);
    to->s = from->content;
    to->len = strlen(from->content);
    for (int r = 0; r < 3; r++) {
        if (strcmp(from->role, roles[r]) != 0) continue;
        to->role = (enum role)r;
        return 0;
    }
    return err_set(err, E_INVAL, "message %zu: role '%.40s' is not system, user or assistant", i,
                   from->role);
}

static int check_order(const struct chat_form *f, const struct message *m, size_t n,
                       struct err *err) {
    size_t offset = n && m[0].role == ROLE_SYSTEM && f->place != SYSTEM_REFUSED;
    bool only_first = f->place != SYSTEM_ANYWHERE && f->place != SYSTEM_GATHERED;
    for (size_t i = 0; i < n; i++) {
        if (m[i].role == ROLE_SYSTEM && f->place == SYSTEM_REFUSED)
            return err_set(err, E_INVAL, "the form %s has no system messages", f->name);
        if (m[i].role == ROLE_SYSTEM && only_first && i > 0)
            return err_set(err, E_INVAL, "the form %s has a system message only in first place",
                           f->name);
        if ((f->flags & FORM_ALTERNATE) && i >= offset &&
            (m[i].role == ROLE_USER) != ((i - offset) % 2 == 0))
            return err_set(err, E_INVAL,
                           "the form %s wants user and assistant in turn, from a user on", f->name);
    }
    return 0;
}

// All messages, with `n_front` of our own before them.
static int read_messages(const struct chat_template *c, const struct chat_message *messages,
                         size_t n, size_t n_front, struct message **out, struct err *err) {
    static const struct message front[] = {{ROLE_USER, "X", 1}, {ROLE_ASSISTANT, "X", 1}};
    if (n == 0) return err_set(err, E_INVAL, "a conversation without messages");
    if (n > TEXT_MAX_BYTES / sizeof **out)
        return err_set(err, E_LIMIT, "a conversation of %zu messages", n);
    struct message *m = malloc((n_front + n) * sizeof *m);
    if (!m) return err_set(err, E_NOMEM, "no memory for %zu messages", n);
    memcpy(m, front, n_front * sizeof *m);
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = read_message(&messages[i], i, &m[n_front + i], err);
    // A later system message that would move to the front cannot be added to a running session.
    if (rc == 0 && n_front && c->form->place == SYSTEM_GATHERED)
        for (size_t i = n_front; i < n_front + n && rc == 0; i++)
            if (m[i].role == ROLE_SYSTEM)
                rc = err_set(err, E_INVAL, "the form %s has a system message only at the start",
                             c->form->name);
    if (rc == 0) rc = check_order(c->form, m, n_front + n, err);
    if (rc < 0) {
        free(m);
        m = NULL;
    }
    *out = m;
    return rc;
}

static int writer_init(struct writer *w, const struct chat_template *c, const struct message *m,
                       size_t n, struct err *err) {
    *w = (struct writer){.c = c, .form = c->form, .messages = m, .n = n};
    buf_init(&w->text, TEXT_MAX_BYTES);
    w->plain = malloc(4 * (n + 1) * sizeof *w->plain);
    return w->plain ? 0 : err_set(err, E_NOMEM, "no memory for %zu messages", n);
}

static void writer_release(struct writer *w) {
    buf_release(&w->text);
    free(w->plain);
}

// --- conversations
// ----------------------------------------------------------------------------------------

int chat_template_render(const struct chat_template *c, const struct chat_message *messages,
                         size_t n, bool add_generation_prompt, bool forge, struct token_list *ids,
                         struct buf *text, struct err *err) {
    struct message *m = NULL;
    struct writer w;
    TRY(read_messages(c, messages, n, 0, &m, err));
    int rc = writer_init(&w, c, m, n, err);
    if (rc == 0) rc = write_all(&w, add_generation_prompt, err);
    if (rc == 0 && ids) {
        struct encode_options opt = {.plain = w.plain, .n_plain = forge ? 0 : w.n_plain};
        rc = tokenizer_encode(c->tokenizer, buf_z(&w.text), w.text.len, &opt, ids, err);
    }
    if (rc == 0 && text && (rc = buf_add(text, buf_z(&w.text), w.text.len)) < 0)
        err_set(err, rc, "no room for the conversation's text");
    writer_release(&w);
    free(m);
    return rc;
}

// Where the new turn begins in the text: behind the second message's words, or, where the log ends
// with the end-of-turn token, behind that token.
static size_t turn_start(const struct writer *w, int32_t last_id) {
    size_t at = w->behind_second, words = w->text.len, len = strlen(w->c->end_text);
    if (last_id != w->c->end_of_turn || len == 0) return at;
    for (size_t i = 0; i < w->n_plain && words == w->text.len; i++)
        if (w->plain[i].from >= at && w->plain[i].to > at) words = w->plain[i].from;
    const char *found = memmem(w->text.data + at, words - at, w->c->end_text, len);
    return found ? (size_t)(found - w->text.data) + len : at;
}

int chat_template_render_next(const struct chat_template *c, const struct chat_message *messages,
                              size_t n, int32_t last_id, struct token_list *ids, struct err *err) {
    if (last_id < 0) return chat_template_render(c, messages, n, true, false, ids, NULL, err);
    struct message *m = NULL;
    struct writer w;
    TRY(read_messages(c, messages, n, 2, &m, err));
    int rc = writer_init(&w, c, m, n + 2, err);
    if (rc == 0) rc = write_all(&w, true, err);
    if (rc == 0) {
        size_t start = turn_start(&w, last_id), first = 0;
        while (first < w.n_plain && w.plain[first].from < start) first++;
        for (size_t i = first; i < w.n_plain; i++) {
            w.plain[i].from -= start;
            w.plain[i].to -= start;
        }
        struct encode_options opt = {.plain = w.plain + first, .n_plain = w.n_plain - first};
        rc =
            tokenizer_encode(c->tokenizer, w.text.data + start, w.text.len - start, &opt, ids, err);
    }
    writer_release(&w);
    free(m);
    return rc;
}
