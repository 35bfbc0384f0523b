// Finds and copies the text files of a model folder: tokenizer, special tokens, chat template.
#pragma once
#include "base/err.h"
#include <limits.h>

// The folder of tokenizer and chat template. named, unless it is NULL or empty, is that folder, and
// E_NOTFOUND if it has no tokenizer. For a FasterTransformer checkpoint it is N-gpu, its parent, or
// preprocessing/1 of the model repository around it, whichever has a tokenizer first, and N-gpu if
// none has. Any other model folder is its own.
int text_files_dir(char out[PATH_MAX], const char *model_dir, const char *named, struct err *err);
// The file from which tokenizer_open reads a folder's tokenizer (of vocab.json and merges.txt, the
// former); NULL if there is none.
const char *text_files_tokenizer(const char *dir);
// Copies tokenizer, special tokens, chat template. *n (may be NULL): how many files there were.
int text_files_copy(const char *from, const char *to, int *n, struct err *err);
