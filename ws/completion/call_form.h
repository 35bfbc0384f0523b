// How the model's chat template writes tool calls, so that a forced call is drawn in the template's own words: then the
// next request's prompt begins with the log as it is, and nothing of it is computed again. Any thread.
#pragma once
#include "ws/completion/completion.h"

// Finds the form by rendering conversations with calls. The result is the member GRAMMAR_WRITTEN of a schema of calls
// (engine/grammar/schema_calls.c); cJSON_Delete it. several: the answer may have more than one call, if the template
// writes such answers. *out is NULL where the form is unknown: the template writes no calls, or writes ids into them, or
// cannot be followed. E_NOMEM.
int call_form_find(const struct completion_request *r, bool several, cJSON **out);
// Whether a call of a tool with these parameters (NULL: it has none) can be written in the form.
bool call_form_suits(const cJSON *form, const cJSON *parameters);
