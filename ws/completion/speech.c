// See speech.h.
#include "ws/completion/speech.h"
#include "base/random_id.h"
#include "ws/completion/plan.h"
#include <stdio.h>
#include <string.h>

void speech_init(struct speech *s, const struct completion_request *r, bool thinks) {
    *s = (struct speech){.request = r};
    answer_parser_init(&s->parser, engine_syntax(r->served->engine), completion_calls(r), thinks);
    s->parser.strict = r->callable != NULL;
    call_inputs_init(&s->inputs, r->custom);
    s->parser.single = r->no_parallel_tool_calls;
    drawn_text_init(&s->drawn, r->sampling ? &r->sampling->params.stop : NULL);
}

void speech_release(struct speech *s) {
    answer_parser_release(&s->parser);
    call_inputs_release(&s->inputs);
    drawn_text_release(&s->drawn);
    event_tokens_release(&s->tokens);
}

static bool wants_logprobs(const struct speech *s) {
    return s->request->sampling && s->request->sampling->params.logprobs;
}

bool speech_wants_tokens(const struct speech *s) {
    return wants_logprobs(s) || answer_parser_thinks(&s->parser) ||
           s->parser.state == ANSWER_BEGINS;
}

// --- tokens ---

static int add_tokens(struct speech *s, const struct session_event *ev) {
    const struct served_model *m = s->request->served;
    size_t n_alt = ev->alternatives ? (size_t)ev->n_alternatives : 0;
    bool wanted = ev->logprobs && wants_logprobs(s);
    for (size_t i = 0; i < ev->n_ids; i++) {
        uint64_t start = drawn_text_add(&s->drawn, m->engine, ev->ids[i]);
        if (wanted)
            TRY(event_tokens_add(&s->tokens, m, ev->ids[i], ev->logprobs[i], start,
                                 n_alt ? ev->alternatives + i * n_alt : NULL, n_alt));
    }
    return 0;
}

// --- in ---

void speech_delta(struct speech *s, const struct session_event *ev) {
    bool thought = answer_parser_thinks(&s->parser);
    if (add_tokens(s, ev) < 0) s->parser.failed = true;
    if (thought) s->n_reasoning += (int64_t)ev->n_ids;
    s->n_tokens_in += (int64_t)ev->n_ids;
    // A token without text (an end token that is ignored, a part of a character) is not sent by itself.
    if (!s->drawn_us && ev->text_len > 0) s->drawn_us = ev->drawn_us;
    drawn_text_give(&s->drawn, ev->text, ev->text_len);
    answer_parser_feed(&s->parser, ev->text, ev->text_len);
}

void speech_end(struct speech *s, const char *text, size_t len, const char *finish) {
    drawn_text_give(&s->drawn, text, len);
    answer_parser_feed(&s->parser, text, len);
    answer_parser_end(&s->parser);
    s->closing = true;
    s->finish = COMPLETION_STOP;
    if (strcmp(finish, "length") == 0) s->finish = COMPLETION_LENGTH;
    if (strcmp(finish, "cancelled") == 0) s->finish = COMPLETION_CANCELLED;
    if (strcmp(finish, "deadline") == 0) s->finish = COMPLETION_DEADLINE;
    if (strcmp(finish, "stop") == 0) {
        s->finish = COMPLETION_STOP_SEQUENCE;
        s->stop = drawn_text_stop(&s->drawn);
    }
}

// --- out ---

// Mistral's templates accept only ids of nine letters and digits.
static void draw_tool_id(struct speech *s) {
    char id[RANDOM_ID_LEN + 1];
    random_id(id);
    if (s->parser.syntax.tools == TOOL_SYNTAX_MISTRAL)
        snprintf(s->tool_id, sizeof s->tool_id, "%.9s", id);
    else
        snprintf(s->tool_id, sizeof s->tool_id, "call_%.24s", id);
}

enum completion_event_kind speech_event_kind(enum answer_piece_kind kind) {
    static const enum completion_event_kind kinds[] = {
        [PIECE_THINKING] = COMPLETION_THINKING,
        [PIECE_TEXT] = COMPLETION_TEXT,
        [PIECE_TOOL_BEGIN] = COMPLETION_TOOL_BEGIN,
        [PIECE_TOOL_ARGUMENTS] = COMPLETION_TOOL_ARGUMENTS,
        [PIECE_TOOL_END] = COMPLETION_TOOL_END,
    };
    return kinds[kind];
}

static int put_piece(struct speech *s, const struct answer_piece *piece,
                     struct completion_event *out) {
    if (piece->kind == PIECE_TOOL_BEGIN) draw_tool_id(s);
    out->kind = speech_event_kind(piece->kind);
    out->answer = s->answer;
    out->text = piece->text;
    out->text_len = piece->len;
    out->tool = piece->tool;
    out->tool_id = s->tool_id;
    out->tool_name = s->parser.name;
    out->tool_is_custom = s->inputs.is_custom;
    out->drawn_us = s->drawn_us;
    s->drawn_us = 0;
    s->n_out = event_tokens_put(&s->tokens, drawn_text_end(&s->drawn), out);
    return 1;
}

int speech_next(struct speech *s, struct completion_event *out) {
    struct answer_piece piece;
    event_tokens_drop(&s->tokens, s->n_out);
    s->n_out = 0;
    int rc = call_inputs_next(&s->inputs, &s->parser, &piece);
    if (rc < 0) return rc;
    if (rc > 0) return put_piece(s, &piece, out);
    if (!s->closing || s->ended) return 0;
    s->ended = true;
    if (s->parser.n_tools > 0 && s->finish == COMPLETION_STOP) s->finish = COMPLETION_TOOL_CALLS;
    out->kind = COMPLETION_ANSWER;
    out->answer = s->answer;
    out->finish = s->finish;
    out->stop_sequence = s->stop;
    uint64_t end = s->finish == COMPLETION_STOP_SEQUENCE ? drawn_text_end(&s->drawn) : UINT64_MAX;
    s->n_out = event_tokens_put(&s->tokens, end, out);
    return 1;
}
