// Prompt learning as FasterTransformer's clients ask for it: a task of the checkpoint, by its number
// (prompt_learning_task_name_ids), or the client's own table (request_prompt_type, _lengths, _embedding).
//
//   type 1  soft prompts: rows before the input
//   type 2  a prefix: each row is the keys and values of every layer, (layers, 2, heads, head_dim)
//   type 3  p-tuning: input_ids from engine_info.prompt_start_id on name rows; without any, as type 1
//
// Where FasterTransformer only warned, Parley refuses the request and names the input. Any thread.
#pragma once
#include "ws/kserve/infer_request.h"

// Gives each row its table, and puts virtual ids into the row's ids: in place of the ids that name them in the
// input, or all before the first input of a session. Also makes the last check of ids. E_INVAL, E_NOMEM.
int prompt_inputs_read(struct infer_request *r, const struct engine *e, const struct tensors *all,
                       struct err *err);
