// Reads a prompt table of a FasterTransformer folder; prompt_tasks.h has the files' names and layouts.
#pragma once
#include "engine/model/ft_config.h"
#include "engine/model/prompt.h"

// Fails if the file is missing, has another size or a value that is not finite; the error names the file.
int ft_prompt_load(struct prompt **out, const struct ft_config *c, const char *ft_dir,
                   const struct ft_task *task, struct err *err);
