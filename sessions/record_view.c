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

void record_turn_view(const struct stored_turn *t, struct turn_view *out) {
    const struct turn_record *r = &t->rec;
    bool done = r->finish_reason[0];
    *out = (struct turn_view){
        .turn = r->turn,
        .parent = r->parent,
        .state = done                ? TURN_DONE
                 : r->log_first >= 0 ? TURN_RUNNING
                                     : TURN_QUEUED,
        .input = {.kind = r->kind,
                  .text = r->input_text,
                  .text_len = r->input_text_len,
                  .n_ids = r->n_input_ids},
        .text = t->tokens.text ? t->tokens.text : "",
        .text_len = t->tokens.text_len,
        .finish_reason = done ? r->finish_reason : NULL,
        .numbers = r->numbers,
        .seed = r->seed,
        .sampling = r->sampling,
        .created_ms = r->created_ms,
        .seq_first = r->seq_first,
        .seq_last = r->seq_last,
        .error_code = r->error_code[0] ? r->error_code : NULL,
        .error_message = r->error_message,
    };
    out->numbers.input_tokens = r->n_input;
    out->numbers.output_tokens = r->n_output;
}
