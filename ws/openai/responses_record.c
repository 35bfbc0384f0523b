// Turns as responses. See responses_record.h.
#include "ws/openai/responses_record.h"
#include "ws/completion/call_inputs.h"
#include "ws/completion/drawn_text.h"
#include "ws/completion/event_tokens.h"
#include "ws/completion/speech.h"
#include "ws/openai/responses_items.h"
#include "ws/openai/responses_request.h"
#include "ws/openai/tool_choice.h"
#include "ws/service.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int copy_tokens(struct responses_record *r, const struct turn_detail *d) {
    bool failed = false;
    size_t n_alt = d->alternatives ? (size_t)d->rec->n_alternatives : 0;
    r->ids = record_memdup(d->ids, d->n_ids * sizeof *d->ids, &failed);
    r->logprobs = record_memdup(d->logprobs, d->n_ids * sizeof *d->logprobs, &failed);
    if (n_alt)
        r->alternatives =
            record_memdup(d->alternatives, d->n_ids * n_alt * sizeof *d->alternatives, &failed);
    r->n_alternatives = (int32_t)n_alt;
    return failed ? E_NOMEM : 0;
}

int responses_record_copy(struct responses_record *r, const struct session_answer *a) {
    const struct turn_detail *d = a->detail;
    const struct turn_record *t = d->rec;
    bool failed = false;
    *r = (struct responses_record){.turn = t->turn,
                                   .text_len = d->turn.text_len,
                                   .n_ids = d->n_ids,
                                   .last_id = d->n_ids ? d->ids[d->n_ids - 1] : -1,
                                   .numbers = d->turn.numbers,
                                   .prompt_tokens = t->log_first + t->n_input,
                                   .created_ms = t->created_ms,
                                   .ended_ms = t->ended_ms,
                                   .seq_first = t->seq_first,
                                   .wants_logprobs = t->logprobs};
    snprintf(r->session, sizeof r->session, "%s", a->session_id);
    snprintf(r->finish, sizeof r->finish, "%s", t->finish_reason);
    snprintf(r->error_code, sizeof r->error_code, "%s", t->error_code);
    r->request = record_strdup(t->request, &failed);
    r->error_message = record_strdup(t->error_message, &failed);
    r->text = record_memdup(d->turn.text, d->turn.text_len, &failed);
    r->text_ends = record_memdup(d->text_ends, d->n_ids * sizeof *d->text_ends, &failed);
    if (t->logprobs && d->n_ids) failed |= copy_tokens(r, d) < 0;
    if (t->kind == INPUT_CONTENT && t->input_text) {
        r->input_text = malloc(t->input_text_len + 1);
        if (r->input_text) {
            memcpy(r->input_text, t->input_text, t->input_text_len);
            r->input_text[t->input_text_len] = '\0';
        }
        failed |= !r->input_text;
    }
    if (!failed) return 0;
    responses_record_release(r);
    return E_NOMEM;
}

void responses_record_release(struct responses_record *r) {
    free(r->request);
    free(r->input_text);
    free(r->text);
    free(r->text_ends);
    free(r->ids);
    free(r->logprobs);
    free(r->alternatives);
    free(r->error_message);
    cJSON_Delete(r->note);
    free(r->echo);
    placement_drop(r->served);
    *r = (struct responses_record){0};
}

void responses_session_release(struct responses_session *s) {
    free(s->note);
    free(s->model);
    *s = (struct responses_session){0};
}

// --- the note --------------------------------------------------------------

static cJSON *parse(const char *text) {
    struct err err = {0};
    return text ? json_parse(text, strlen(text), &json_limits_file, &err) : NULL;
}

// Its members without the braces.
static char *print_members(const cJSON *object) {
    char *text = cJSON_PrintUnformatted(object);
    if (!text) return NULL;
    size_t n = strlen(text);
    memmove(text, text + 1, n - 2);
    text[n - 2] = '\0';
    return text;
}

// Stands in for the echo of a turn that came through another protocol.
static char *plain_echo(const struct responses_record *r) {
    char text[256];
    snprintf(text, sizeof text,
             "\"created_at\":%lld,\"model\":\"\",\"instructions\":null,\"metadata\":{},"
             "\"parallel_tool_calls\":true,\"previous_response_id\":null,\"temperature\":null,"
             "\"tool_choice\":\"auto\",\"tools\":[],\"top_p\":null,\"truncation\":\"disabled\"",
             (long long)(r->created_ms / 1000));
    return strdup(text);
}

int responses_record_read(struct responses_record *r, const struct service *s) {
    cJSON *request = parse(r->request);
    r->note = parse(cJSON_GetStringValue(json_member(request, "note")));
    cJSON_Delete(request);
    const cJSON *echo = json_member(r->note, "echo");
    r->echo = echo ? print_members(echo) : plain_echo(r);
    const char *model = cJSON_GetStringValue(json_member(echo, "model"));
    if (model) r->served = service_hold_model(s, model);
    return r->echo ? 0 : E_NOMEM;
}

bool responses_record_thinks(const struct responses_record *r) {
    return cJSON_IsTrue(json_member(r->note, "thinks"));
}

struct responses_thinking responses_record_thinking(const struct responses_record *r) {
    const cJSON *echo = json_member(r->note, "echo");
    return (struct responses_thinking){
        .summary = responses_asks_summary(json_member(echo, "reasoning")),
        .encrypted = cJSON_IsTrue(json_member(r->note, "encrypted"))};
}

const cJSON *responses_record_input(const struct responses_record *r) {
    return json_member(r->note, "input");
}

const char *responses_record_previous(const struct responses_record *r) {
    return cJSON_GetStringValue(json_member(json_member(r->note, "echo"), "previous_response_id"));
}

bool responses_record_in_conversation(const struct responses_record *r) {
    return cJSON_IsObject(json_member(json_member(r->note, "echo"), "conversation"));
}

// A note begins with its prefix and revision. The note is a string in the request's JSON, so its quotes are escaped.
static const char note_begin[] = "\"note\":\"{\\\"prefix\\\":\\\"";
#define PREFIX_DIGITS 16
static bool note_begins(const struct responses_record *r, const char *with, bool without) {
    const char *at = r->request ? strstr(r->request, note_begin) : NULL;
    return at ? strncmp(at + sizeof note_begin - 1, with, strlen(with)) == 0 : without;
}

bool responses_record_is_warm_up(const struct responses_record *r) {
    static const char mark[] = "\\\",\\\"generate\\\":false,";
    const char *at = r->request ? strstr(r->request, note_begin) : NULL;
    size_t n = at ? strlen(at) : 0, from = sizeof note_begin - 1 + PREFIX_DIGITS;
    return n > from && strncmp(at + from, mark, sizeof mark - 1) == 0;
}

bool responses_record_has_prefix(const struct responses_record *r, uint64_t prefix) {
    char text[17];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)prefix);
    return note_begins(r, text, true);
}

bool responses_record_has_revision(const struct responses_record *r, uint64_t prefix,
                                   int64_t revision) {
    char text[80];
    snprintf(text, sizeof text, "%016llx\\\",\\\"revision\\\":%lld,", (unsigned long long)prefix,
             (long long)revision);
    return note_begins(r, text, false);
}

// --- the answer ------------------------------------------------------------

static int add_token(const struct responses_record *r, size_t i, struct drawn_text *drawn,
                     struct event_tokens *tokens) {
    size_t n_alt = (size_t)r->n_alternatives;
    if (!r->ids || !r->served) return 0;
    uint64_t start = drawn_text_add(drawn, r->served->engine, r->ids[i]);
    return event_tokens_add(tokens, r->served, r->ids[i], r->logprobs[i], start,
                            n_alt ? r->alternatives + i * n_alt : NULL, n_alt);
}

static void take_pieces(struct answer_parser *p, struct call_inputs *inputs,
                        const struct drawn_text *drawn, struct event_tokens *tokens,
                        struct responses_output *out) {
    struct answer_piece piece;
    int rc;
    while ((rc = call_inputs_next(inputs, p, &piece)) == 1) {
        struct completion_event e = {.kind = speech_event_kind(piece.kind),
                                     .text = piece.text,
                                     .text_len = piece.len,
                                     .tool_name = piece.text,
                                     .tool_is_custom = inputs->is_custom};
        size_t n = event_tokens_put(tokens, drawn_text_end(drawn), &e);
        responses_output_take(out, &e);
        event_tokens_drop(tokens, n);
    }
    if (rc < 0) out->failed = true;
}

// Plays the record token by token, so that the same words are in the same events as in the live stream.
static int64_t play_tokens(const struct responses_record *r, struct answer_parser *p,
                           struct call_inputs *inputs, struct responses_output *out) {
    struct event_tokens tokens = {0};
    struct drawn_text drawn;
    int64_t n_thought = 0;
    size_t from = 0;
    drawn_text_init(&drawn, NULL);
    for (size_t i = 0; i < r->n_ids; i++) {
        size_t to = r->text_ends[i] < r->text_len ? r->text_ends[i] : r->text_len;
        n_thought += answer_parser_thinks(p);
        if (out->logprobs && add_token(r, i, &drawn, &tokens) < 0) out->failed = true;
        if (to <= from) continue;
        drawn_text_give(&drawn, r->text + from, to - from);
        answer_parser_feed(p, r->text + from, to - from);
        take_pieces(p, inputs, &drawn, &tokens, out);
        from = to;
    }
    if (r->finish[0]) {
        if (r->text_len > from) answer_parser_feed(p, r->text + from, r->text_len - from);
        if (r->text_len > from) drawn_text_give(&drawn, r->text + from, r->text_len - from);
        answer_parser_end(p);
        take_pieces(p, inputs, &drawn, &tokens, out);
    }
    drawn_text_release(&drawn);
    event_tokens_release(&tokens);
    return n_thought;
}

static void play_end(const struct responses_record *r, struct responses_output *out) {
    struct completion_failure failure = {0};
    struct completion_event e = {.kind = COMPLETION_ANSWER, .finish = COMPLETION_STOP};
    if (strcmp(r->finish, "error") == 0)
        completion_failure_set(&failure, r->error_code, r->error_message);
    if (strcmp(r->finish, "interrupted") == 0 || strcmp(r->finish, "shutdown") == 0)
        completion_failure_set(&failure, "shutting_down",
                               "the server ended before the response was complete");
    if (failure.status) {
        responses_output_take(
            out, &(struct completion_event){.kind = COMPLETION_FAILED, .failure = &failure});
        return;
    }
    if (strcmp(r->finish, "length") == 0) e.finish = COMPLETION_LENGTH;
    if (strcmp(r->finish, "cancelled") == 0) e.finish = COMPLETION_CANCELLED;
    if (strcmp(r->finish, "deadline") == 0) e.finish = COMPLETION_DEADLINE;
    responses_output_take(out, &e);
    e.kind = COMPLETION_DONE;
    e.usage = out->usage;
    responses_output_take(out, &e);
}

// Sets the tools, and which of them the answer was searched for.
static void read_tools(const struct responses_record *r, struct completion_request *c) {
    struct completion_failure failure = {0};
    const cJSON *echo = json_member(r->note, "echo"), *choice = json_member(echo, "tool_choice");
    responses_tools_read(&c->tools, json_member(echo, "tools"), choice, &failure);
    openai_tool_choice_read(c, choice, responses_choice_name, &failure);
    completion_read_tools(c, &failure);
}

struct completion_request *responses_record_completion(struct responses_record *r) {
    struct completion_request *c = r->served ? completion_request_new() : NULL;
    if (!c) return NULL;
    if (r->wants_logprobs && !(c->sampling = malloc(sizeof *c->sampling))) {
        completion_request_free(c);
        return NULL;
    }
    if (c->sampling) turn_sampling_init(c->sampling);
    if (c->sampling) c->sampling->params.logprobs = true;
    c->served = r->served;
    r->served = NULL;
    read_tools(r, c);
    return c;
}

void responses_record_play(const struct responses_record *r, struct responses_output *out) {
    struct answer_parser parser;
    struct call_inputs inputs;
    struct chat_syntax syntax = {0};
    struct completion_request *asked = completion_request_new();
    if (asked)
        read_tools(r, asked);
    else
        out->failed = true;
    if (r->served) syntax = engine_syntax(r->served->engine);
    out->usage = (struct completion_usage){.prompt_tokens = r->prompt_tokens,
                                           .cached_tokens = r->numbers.kept_tokens,
                                           .completion_tokens = (int64_t)r->n_ids};
    out->silent = responses_record_is_warm_up(r);
    out->thinking = responses_record_thinking(r);
    responses_output_begin(out, r->session, r->turn);
    answer_parser_init(&parser, syntax, asked ? completion_calls(asked) : NULL,
                       responses_record_thinks(r));
    parser.strict = asked && asked->callable;
    parser.single = cJSON_IsFalse(json_member(json_member(r->note, "echo"), "parallel_tool_calls"));
    call_inputs_init(&inputs, asked ? asked->custom : NULL);
    out->usage.reasoning_tokens = play_tokens(r, &parser, &inputs, out);
    call_inputs_release(&inputs);
    if (parser.failed) out->failed = true;
    answer_parser_release(&parser);
    completion_request_free(asked);
    out->completed_s = r->ended_ms / 1000;
    if (r->finish[0]) play_end(r, out);
}

// --- as a conversation -----------------------------------------------------

void responses_record_put_input(const struct responses_record *r, struct json_writer *w,
                                const cJSON *item, int64_t index) {
    const char *type = cJSON_GetStringValue(json_member(item, "type"));
    char id[RESPONSES_ID_MAX];
    responses_id_item(id, responses_id_prefix(type), r->session, r->turn, index, true);
    responses_item_put(w, item, id);
}

static void put_output(const struct responses_record *r, struct json_writer *w) {
    struct responses_output out;
    responses_output_init(&out, r->echo, NULL, NULL);
    responses_record_play(r, &out);
    responses_output_write_items(&out, w);
    if (out.failed) w->buf->error = E_NOMEM;
    responses_output_release(&out);
}

// Input items as they were sent, if asked for, and output items. NULL: no memory.
static cJSON *items_of(const struct responses_record *r, const cJSON *input) {
    const cJSON *item;
    struct json_writer w;
    struct buf text;
    int64_t i = 0;
    buf_init(&text, SIZE_MAX / 2);
    json_writer_init(&w, &text);
    json_open(&w, NULL, '[');
    cJSON_ArrayForEach(item, input) responses_record_put_input(r, &w, item, i++);
    put_output(r, &w);
    json_close(&w, ']');
    cJSON *items = text.error ? NULL : parse(buf_z(&text));
    buf_release(&text);
    return items;
}

int responses_record_items(const struct responses_record *r, cJSON *items) {
    const cJSON *input = responses_record_input(r);
    cJSON *all = input ? items_of(r, input) : NULL, *item;
    if (!all) return input ? E_NOMEM : E_NOTFOUND;
    while ((item = cJSON_DetachItemFromArray(all, 0))) cJSON_AddItemToArray(items, item);
    cJSON_Delete(all);
    return 0;
}

cJSON *responses_record_known_items(const struct responses_record *r) {
    return items_of(r, responses_record_input(r));
}

int responses_record_messages(const struct responses_record *r, cJSON *messages) {
    struct completion_failure failure = {0};
    const cJSON *input = responses_record_input(r);
    cJSON *plain = !r->note && r->input_text ? cJSON_CreateString(r->input_text) : NULL;
    if (!input) input = plain;
    int rc = input ? responses_items_read(messages, input, "input", &failure) : E_NOTFOUND;
    cJSON_Delete(plain);
    if (rc < 0) return rc;
    cJSON *items = items_of(r, NULL);
    rc = items ? responses_items_read(messages, items, "output", &failure) : E_NOMEM;
    cJSON_Delete(items);
    return rc;
}
