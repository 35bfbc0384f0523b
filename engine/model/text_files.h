// The files of a model folder that are about words, not weights: where they are, and copying them.
#pragma once
#include "base/err.h"
#include <limits.h>

// The folder to open tokenizer and chat template from. Of a FasterTransformer checkpoint, which has
// none of its own, that is N-gpu or the folder around it, whichever holds a tokenizer, and N-gpu
// where neither does. Of any other folder, itself.
int text_files_dir(char out[PATH_MAX], const char *model_dir, struct err *err);
// The file of a folder that its tokenizer is read from (of vocab.json and merges.txt, the former),
// as tokenizer_open chooses; NULL where there is none.
const char *text_files_tokenizer(const char *dir);
// Copies tokenizer, special tokens, chat template. *n (may be NULL): how many files there were.
int text_files_copy(const char *from, const char *to, int *n, struct err *err);
