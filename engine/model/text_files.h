// Finds and copies the text files of a model folder: tokenizer, special tokens, chat template.
#pragma once
#include "base/err.h"
#include <limits.h>

// Finds the folder of tokenizer and chat template. If named is neither NULL nor empty, it is that folder;
// E_NOTFOUND if it has no tokenizer. For a FasterTransformer checkpoint it is the first folder with a
// tokenizer among N-gpu, its parent, and preprocessing/1 of the model repository around it; N-gpu if
// none has one. For any other model it is the model folder.
int text_files_dir(char out[PATH_MAX], const char *model_dir, const char *named, struct err *err);
// The file from which tokenizer_open reads a folder's tokenizer (vocab.json if it reads vocab.json and
// merges.txt); NULL if there is none.
const char *text_files_tokenizer(const char *dir);
// Copies tokenizer, special tokens, chat template. *n (may be NULL): the number of files copied.
int text_files_copy(const char *from, const char *to, int *n, struct err *err);
