// A turn's input: makes the ids that continue the log from a request, or says why it cannot. See
// service.h.
#include "sessions/turns/input.h"
#include "base/err.h"
#include "sessions/state/service.h"
#include "sessions/state/tree.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int input_no_model(const struct session *s, struct err *err) {
    char names[PLACEMENT_NAMES_MAX];
    struct served_model *namesake;
    if (placement_find_model(&s->service->placement, s->rec.model, &namesake, NULL) == 0)
        return err_set(err, E_UNSUPPORTED,
                       "the session was made with another model of the name '%s': the weights or "
                       "their number format (weight_dtype) were not those of this server",
                       s->rec.model);
    return err_set(err, E_UNSUPPORTED,
                   "the session was made with another model ('%s'); this server has %s",
                   s->rec.model, placement_names(&s->service->placement, names));
}

struct input_source input_source_of(const struct session *s, const struct turn_input *in,
                                    int64_t parent) {
    bool first = in->kind == INPUT_CONTENT && !tree_chat_begun(s, parent);
    int32_t last_id = tree_last_id(s, parent);
    return (struct input_source){.kind = in->kind,
                                 .text = in->text,
                                 .text_len = in->text_len,
                                 .system = first ? s->rec.system : NULL,
                                 .last_id = last_id,
                                 .n_virtual = last_id < 0 ? (int32_t)s->rec.prompt_rows : 0,
                                 .answer = in->answer,
                                 .answer_len = in->answer_len};
}

static int render(const struct engine *e, const struct input_source *source, struct token_list *out,
                  struct err *err) {
    const struct engine_info *info = engine_info(e);
    struct engine_message messages[2];
    size_t n = 0;
    if (!info->chat_template)
        return err_set(err, E_UNSUPPORTED, "%s",
                       info->template_error ? info->template_error
                                            : "the model has no chat template");
    if (source->system) messages[n++] = (struct engine_message){"system", source->system};
    messages[n++] = (struct engine_message){"user", source->text};
    return engine_render_turn(e, messages, n, source->last_id, out, err);
}

// The answer's tokens behind its rendered input. Where the template has opened the model's thinking, the answer
// closes it first, unless it has thinking of its own.
static int add_answer(const struct engine *e, const struct input_source *source,
                      struct token_list *list, struct input_ids *out, struct err *err) {
    const char *close = engine_syntax(e).think_close;
    size_t before = list->len, len = source->answer_len;
    out->thinking = close && engine_begins_thinking(e, list->ids, (int64_t)list->len, false);
    bool closes = out->thinking && !memmem(source->answer, len, close, strlen(close));
    size_t size = len + (closes ? strlen(close) + 4 : 1);
    char *text = malloc(size);
    if (!text) return err_set(err, E_NOMEM, "the server is out of memory");
    int n = closes ? snprintf(text, size, "\n%s\n\n", close) : 0;
    memcpy(text + n, source->answer, len);
    text[(size_t)n + len] = '\0';
    out->answer = text;
    TRY(engine_tokenize_after(e, list->ids[list->len - 1], text, (size_t)n + len, list, err));
    out->n_answer = list->len - before;
    return 0;
}

int input_encode(const struct engine *e, const struct input_source *source, struct input_ids *out,
                 struct err *err) {
    struct token_list list;
    if (!engine_info(e)->tokenizer)
        return err_set(err, E_UNSUPPORTED, "the model has no tokenizer: it takes ids only");
    token_list_init(&list);
    for (int32_t i = 0; i < source->n_virtual; i++)
        if (token_list_push(&list, PROMPT_ID_FIRST + i) < 0) {
            token_list_release(&list);
            return err_set(err, E_NOMEM, "the server is out of memory");
        }
    int rc =
        source->kind == INPUT_CONTENT ? render(e, source, &list, err)
        : source->last_id < 0 && source->n_virtual == 0
            ? engine_tokenize_start(e, source->text, source->text_len, &list, err)
            : engine_tokenize_after(e, source->last_id, source->text, source->text_len, &list, err);
    *out = (struct input_ids){.last_id = source->last_id, .system = source->system};
    if (rc == 0 && source->answer) rc = add_answer(e, source, &list, out, err);
    if (rc < 0) input_ids_release(out);
    if (rc == 0) {
        out->ids = token_list_take(&list, &out->n);
        out->made = true;
        if (!out->ids && out->n) rc = err_set(err, E_NOMEM, "the server is out of memory");
    }
    token_list_release(&list);
    return rc;
}

bool input_suits(const struct input_ids *made, const struct input_source *source) {
    return made->made && made->last_id == source->last_id && made->system == !!source->system;
}

void input_ids_release(struct input_ids *made) {
    free(made->ids);
    free(made->answer);
    *made = (struct input_ids){0};
}

static bool has_virtual(const int32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (prompt_is_virtual(ids[i])) return true;
    return false;
}

bool input_is_given(const struct turn_input *in) {
    return in->kind == INPUT_CONTENT && in->ids && in->n_ids > 0;
}

int input_given(const struct session *s, const struct turn_input *in, int64_t parent,
                struct input_ids *out) {
    struct input_source source = input_source_of(s, in, parent);
    size_t n = has_virtual(in->ids, in->n_ids) ? 0 : (size_t)source.n_virtual;
    int32_t *ids = malloc((n + in->n_ids) * sizeof *ids);
    if (!ids) return E_NOMEM;
    for (size_t i = 0; i < n; i++) ids[i] = PROMPT_ID_FIRST + (int32_t)i;
    memcpy(ids + n, in->ids, in->n_ids * sizeof *ids);
    input_ids_release(out);
    *out = (struct input_ids){.ids = ids,
                              .n = n + in->n_ids,
                              .made = true,
                              .system = !!source.system,
                              .last_id = source.last_id};
    return 0;
}

int input_put_virtual(const struct session *s, struct turn *t) {
    size_t n = (size_t)s->rec.prompt_rows, n_ids = t->rec.n_input_ids;
    if (n == 0 || s->n_log > 0 || t->rec.kind != INPUT_IDS || has_virtual(t->rec.input_ids, n_ids))
        return 0;
    int32_t *ids = malloc((n + n_ids + 1) * sizeof *ids);
    if (!ids) return E_NOMEM;
    for (size_t i = 0; i < n; i++) ids[i] = PROMPT_ID_FIRST + (int32_t)i;
    if (n_ids) memcpy(ids + n, t->rec.input_ids, n_ids * sizeof *ids);
    free(t->rec.input_ids);
    t->rec.input_ids = ids;
    t->rec.n_input_ids = n + n_ids;
    turn_note_input(t);
    return 0;
}

// The engine checks where a prefix's virtual tokens may stand.
static int check_ids(const struct session *s, const struct turn_input *in, struct err *err) {
    const struct engine_info *info = service_model(s)->info;
    if (in->n_ids == 0)
        return err_set(err, E_INVAL,
                       "input.ids is empty: only an empty session may begin so, with a start_id");
    for (size_t i = 0; i < in->n_ids; i++)
        if (in->ids[i] >= PROMPT_ID_FIRST && in->ids[i] - PROMPT_ID_FIRST < s->rec.prompt_rows)
            continue;
        else if (in->ids[i] < 0 || in->ids[i] >= info->n_vocab)
            return err_set(err, E_INVAL, "input.ids has %d; ids go from 0 to %d", in->ids[i],
                           info->n_vocab - 1);
    return 0;
}

static bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

// The least number of tokens that a text can have. A template may trim white space at both ends.
static size_t fewest_tokens(const struct engine_info *info, const char *text, size_t len) {
    if (!info->longest_token) return 0;
    while (len > 0 && is_space(*text)) text++, len--;
    while (len > 0 && is_space(text[len - 1])) len--;
    return len / (size_t)info->longest_token;
}

int input_full(const struct session *s, const char *what, int64_t n, bool at_least, int64_t left,
               struct err *err) {
    struct err_facts facts = {.need = n,
                              .left = left > 0 ? left : 0,
                              .most = s->rec.session_len - 1,
                              .at_least = at_least};
    const char *bound = at_least ? "at least " : "";
    if (n > facts.most)
        return err_full(err, &facts, "%s too long: %s%lld tokens, at most %lld fit in this session",
                        what, bound, (long long)n, (long long)facts.most);
    return err_full(err, &facts, "%s too long: %s%lld tokens, %lld left in this session", what,
                    bound, (long long)n, (long long)facts.left);
}

int input_check(const struct session *s, const struct turn_input *in, struct err *err) {
    const struct served_model *m = service_model(s);
    if (in->kind == INPUT_IDS) return check_ids(s, in, err);
    if (in->kind == INPUT_CONTINUE) return 0;
    if (input_is_given(in)) return check_ids(s, in, err);
    if (in->text_len == 0)
        return err_set(err, E_INVAL, "input.%s is empty", turn_input_kind_name(in->kind));
    // Templates take C strings: nothing may be lost behind a NUL.
    if (memchr(in->text, '\0', in->text_len) ||
        (in->answer && memchr(in->answer, '\0', in->answer_len)))
        return err_set(err, E_INVAL, "input has a NUL character");
    size_t n = fewest_tokens(m->info, in->text, in->text_len);
    if (in->answer) n += fewest_tokens(m->info, in->answer, in->answer_len);
    if ((int64_t)n < s->rec.session_len) return 0;
    return input_full(s, "message", (int64_t)n, true, s->rec.session_len - 1 - (int64_t)s->n_log,
                      err);
}

int input_make(const struct session *s, struct turn *t, struct err *err) {
    const struct turn_record *r = &t->rec;
    if (!turn_input_has_text(r->kind)) return 0;
    struct turn_input in = {.kind = r->kind, .text = r->input_text, .text_len = r->input_text_len};
    struct input_source source = input_source_of(s, &in, r->parent);
    if (input_suits(&t->input, &source)) return 0;
    input_ids_release(&t->input);
    return input_encode(service_model(s)->engine, &source, &t->input, err);
}

int input_check_room(const struct session *s, const struct turn *t, size_t n, struct err *err) {
    if (n == 0 && t->rec.kind != INPUT_CONTINUE)
        return err_set(err, E_INVAL, "the input has no tokens");
    if ((int64_t)(s->n_log + n) < s->rec.session_len) return 0;
    return input_full(s, "message", (int64_t)n, false, s->rec.session_len - 1 - (int64_t)s->n_log,
                      err);
}

int input_check_continue(const struct session *s, const struct turn *t, struct err *err) {
    const struct turn *before = session_turn(s, t->rec.parent);
    if (t->rec.kind != INPUT_CONTINUE) return 0;
    if (!before) return err_set(err, E_INVAL, "the log is empty: there is no answer to go on with");
    if (before->rec.log_first < 0 && before->state == TURN_DONE)
        return err_set(err, E_INVAL, "turn %lld never began: there is no answer to go on with",
                       (long long)before->rec.turn);
    if (before->state == TURN_DONE && strcmp(before->rec.finish_reason, "eos") == 0)
        return err_set(err, E_INVAL, "the answer of turn %lld is complete: it ended by itself",
                       (long long)before->rec.turn);
    return 0;
}
