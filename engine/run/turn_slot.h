// The large parts that only a running turn needs: the state of its draws and of its text. engine_open
// makes one slot for each turn that may run at once; a turn that draws several answers brings one for
// each further answer (branches.h). Engine thread only.
#pragma once
#include "engine/run/sampler.h"
#include "engine/text/detokenizer.h"
#include "engine/text/stop_filter.h"

struct turn_slot {
    bool taken;
    struct sampler sampler;
    struct detokenizer detokenizer;
    struct stop_filter stop;
    const struct engine_turn *spec; // of the answer's turn, borrowed
    int64_t n_tokens;               // of the answer
};

// How the model writes an answer's parts.
struct answer_form {
    const struct thinking_marks *thinking; // NULL: it does not think, or cannot write the marks
    struct chat_syntax syntax;
};

// Begins the text of an answer after the log's first n_before tokens. tokenizer NULL: it has none.
// E_INVAL, E_NOMEM.
int turn_slot_begin_text(struct turn_slot *slot, const struct engine_turn *spec,
                         const struct answer_form *form, const struct tokenizer *tokenizer,
                         int64_t n_before, struct err *err);
// Begins a filter of the turn's stop strings for such an answer. E_INVAL.
int turn_stop_begin(struct stop_filter *f, const struct engine_turn *spec,
                    const struct answer_form *form, int64_t n_before, struct err *err);
// Whether a stop string that the answer's n-th token completes comes before min_tokens.
bool turn_stop_is_early(const struct engine_turn *spec, int64_t n);
// Appends the text that may be shown now to *out (scratch is emptied first): 1 if the token completed a
// stop string, 0 otherwise, or the buffer's error. A slot without a tokenizer has no text.
int turn_slot_text(struct turn_slot *slot, int32_t id, struct buf *scratch, struct buf *out);
// Appends the text that was held back, of an answer that did not end by a stop string.
int turn_slot_flush(struct turn_slot *slot, struct buf *scratch, struct buf *out);
void turn_slot_release_text(struct turn_slot *slot);
