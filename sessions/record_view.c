// See record_view.h.
#include "sessions/record_view.h"

void record_session_view(const struct session_record *r, struct session_view *out) {
    *out = (struct session_view){
        .id = r->id,
        .title = r->title,
        .model = r->model,
        .system = r->system,
        .auto_title = r->auto_title,
        .state = r->closed_ms  ? SESSION_CLOSED
                 : r->n_tokens ? SESSION_COLD
                               : SESSION_OPEN,
        .created_ms = r->created_ms,
        .updated_ms = r->updated_ms,
        .n_turns = r->n_turns,
        .n_tokens = r->n_tokens,
        .session_len = r->session_len,
        .seq = r->seq,
        .memory_len = r->memory_len,
        .sink_len = r->sink_len,
        .turn = -1,
        .sampling = r->sampling,
        .head = r->head,
        .below = -1,
        .forked_from = r->forked_from,
        .forked_turn = r->forked_turn,
        .cancel_after_ms = r->cancel_after_ms,
    };
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
        .sampling = r->sampling,
        .created_ms = r->created_ms,
        .seq_first = r->seq_first,
    };
    out->numbers.input_tokens = r->n_input;
    out->numbers.output_tokens = r->n_output;
    if (!done) return;
    out->finish_reason = r->finish_reason;
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
