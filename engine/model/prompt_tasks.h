// The prompt tables of a served model, each with the name of a task: first those of a FasterTransformer
// checkpoint (sections [task_0] .. of config.ini), then those of the setting prompt_tasks.
//
// FasterTransformer's tables, in the checkpoint's weight_data_type:
//   prompt_learning_type 3   model.prompt_table.TASK.weight.bin            (prompt_length, width)
//   prompt_learning_type 2   model.prefix_prompt.TASK.weight.RANK.bin      (layers, 2, the rank's
//                            heads, prompt_length, head_dim): keys, then values
#pragma once
#include "engine/model/prompt.h"

struct prompt_tasks {         // constant after loading
    struct prompt_task *list; // (n) in order: FasterTransformer's number of a task is its index
    size_t n;
    // The id of a table's first row in the input_ids of FasterTransformer's clients; -1: the first id
    // that is not in the vocabulary.
    int32_t start_id;
};

// list: entries, separated by commas. An entry is NAME=DIR, or a folder with one table, or a folder of
// such folders; without NAME, the name of a table's folder is the task's. "": only the tables of the
// checkpoint in model_dir. The error names task and file. Release after a failure too.
int prompt_tasks_load(struct prompt_tasks *t, const struct model_config *c, const char *model_dir,
                      const char *list, struct err *err);
void prompt_tasks_release(struct prompt_tasks *t);
