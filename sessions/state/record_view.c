// See record_view.h.
#include "sessions/state/record_view.h"

void record_session_view(const struct session_record *r, struct session_view *out) {
    *out = (struct session_view){.rec = *r, .turn = -1, .below = -1};
    out->state = r->closed_ms ? SESSION_CLOSED : r->n_tokens ? SESSION_COLD : SESSION_OPEN;
}

void record_turn_view(const struct turn_record *r, bool done, struct turn_view *out) {
    *out = (struct turn_view){
        .turn = r->turn,
        .parent = r->parent,
        .input = {.kind = r->kind,
                  .text = r->input_text,
                  .text_len = r->input_text_len,
                  .n_ids = r->n_input_ids},
        .numbers = r->numbers,
        .seed = r->seed,
        .thinking = r->thinking,
        .sampling = r->sampling,
        .created_ms = r->created_ms,
        .seq_first = r->seq_first,
    };
    out->numbers.input_tokens = r->n_input;
    out->numbers.output_tokens = r->n_output;
    if (!done) return;
    out->finish_reason = r->finish_reason;
    out->context = r->context;
    out->branch = r->branch;
    out->seq_last = r->seq_last;
    out->error_code = r->error_code[0] ? r->error_code : NULL;
    out->error_message = r->error_message;
}

void stored_turn_view(const struct stored_turn *t, struct turn_view *out) {
    bool done = t->rec.finish_reason[0];
    record_turn_view(&t->rec, done, out);
    out->state = done ? TURN_DONE : t->rec.log_first >= 0 ? TURN_RUNNING : TURN_QUEUED;
    out->seq_last = t->rec.seq_last;
    out->text = t->tokens.text ? t->tokens.text : "";
    out->text_len = t->tokens.text_len;
}
