// The tables that a model is served with, each under the name of a task: those of the setting
// prompt_tasks, behind those of a FasterTransformer checkpoint (sections [task_0] .. of config.ini).
//
// FasterTransformer's tables, in the checkpoint's weight_data_type:
//   prompt_learning_type 3   model.prompt_table.TASK.weight.bin            (prompt_length, width)
//   prompt_learning_type 2   model.prefix_prompt.TASK.weight.RANK.bin      (layers, 2, the rank's
//                            heads, prompt_length, head_dim): keys, then values
#pragma once
#include "engine/model/prompt.h"

struct prompt_tasks {         // constant after loading
    struct prompt_task *list; // (n) in order: a number of FasterTransformer's tasks is an index
    size_t n;
    // What input_ids of FasterTransformer's clients call the first row of a table; -1: the first id
    // that is not in the vocabulary.
    int32_t start_id;
};

// list: "NAME=DIR,NAME=DIR", or folders: of one table, or of folders with one each; their names are
// the tasks'. "": only those of the checkpoint in model_dir. The error names task and file. Release
// in any case.
int prompt_tasks_load(struct prompt_tasks *t, const struct model_config *c, const char *model_dir,
                      const char *list, struct err *err);
void prompt_tasks_release(struct prompt_tasks *t);
