// suggestions.json in a model's folder: what the page offers to say in an empty chat. A JSON array of
//     {"title": "See some code", "text": "Write hello world in C."}
// title is what the page shows above, text is what it sends.
#pragma once
#include "base/err.h"

#define SUGGESTIONS_MAX 12
#define SUGGESTION_TITLE_BYTES 100
#define SUGGESTION_TEXT_BYTES 1000

// *json: the array's text with these two keys alone; free() it. NULL: the folder has no such file, or model
// is no folder. E_FORMAT, E_INVAL, E_LIMIT, E_IO, E_NOMEM: *err names the file. Any thread.
int suggestions_read(const char *model, char **json, struct err *err);
