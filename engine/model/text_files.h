// Finds and copies the text files of a model folder: tokenizer, special tokens, chat template.
#pragma once
#include "base/err.h"
#include <limits.h>

// The folder of tokenizer and chat template. For a FasterTransformer checkpoint, N-gpu or its
// parent, whichever holds a tokenizer, and N-gpu if neither does. Any other folder is returned
// unchanged.
int text_files_dir(char out[PATH_MAX], const char *model_dir, struct err *err);
// The file from which tokenizer_open reads a folder's tokenizer (of vocab.json and merges.txt, the
// former); NULL if there is none.
const char *text_files_tokenizer(const char *dir);
// Copies tokenizer, special tokens, chat template. *n (may be NULL): how many files there were.
int text_files_copy(const char *from, const char *to, int *n, struct err *err);
