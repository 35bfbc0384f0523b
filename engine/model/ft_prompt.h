// A prompt table out of a FasterTransformer folder; prompt_tasks.h has the files' names and layouts.
#pragma once
#include "engine/model/ft_config.h"
#include "engine/model/prompt.h"

// The error names the file: missing, of another size, a value that is not finite.
int ft_prompt_load(struct prompt **out, const struct ft_config *c, const char *ft_dir,
                   const struct ft_task *task, struct err *err);
