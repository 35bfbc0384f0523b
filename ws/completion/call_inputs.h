// Calls of custom tools, whose input is any text. The model sees a custom tool as a function with one string, `input`, so
// its call has the arguments {"input":"..."}; clients see the string. Arguments of another form are given as they are.
// One thread at a time.
#pragma once
#include "engine/engine.h"

struct call_inputs {
    const cJSON *custom; // names of custom tools, borrowed; NULL: none
    bool is_custom;      // the call that the last piece belongs to
    enum {
        CALL_INPUT_BEGINS, // {"input":" is not whole yet
        CALL_INPUT_TEXT,
        CALL_INPUT_OTHER, // arguments of another form
        CALL_INPUT_OVER   // behind the string
    } state;
    bool ending; // `end` comes next
    struct answer_piece end;
    struct buf held; // bytes of the arguments that are not decoded yet
    struct buf text; // what the last piece points to
};

void call_inputs_init(struct call_inputs *c, const cJSON *custom);
void call_inputs_release(struct call_inputs *c);
// As answer_parser_next, with the inputs of custom tools in place of their arguments.
int call_inputs_next(struct call_inputs *c, struct answer_parser *p, struct answer_piece *out);
