// Prompt learning as FasterTransformer's clients ask for it: a task of the checkpoint's by its number
// (prompt_learning_task_name_ids), or a table of their own (request_prompt_type, _lengths, _embedding).
//
//   type 1  soft prompts: rows before the input
//   type 2  a prefix: each row is the keys and values of every layer, (layers, 2, heads, head_dim)
//   type 3  p-tuning: input_ids from engine_info.prompt_start_id on name rows; without any, as type 1
//
// What FasterTransformer only warned about is refused by the input's name. Any thread.
#pragma once
#include "ws/kserve/infer_request.h"

// Gives each row its table, and its ids their virtual ones: those that stand in the input, or all in
// front of the first input of a session. Also the last check of ids. E_INVAL, E_NOMEM.
int prompt_inputs_read(struct infer_request *r, const struct engine *e, const struct tensors *all,
                       struct err *err);
