// What owners use and may use, for the wire: usage.get, GET /v1/usage.
#pragma once
#include "base/json.h"
#include "ws/net/http.h"
#include "ws/service.h"

// {"owner","limits":{NAME:{"limit","used","refused"}}}; key NULL inside an array.
void usage_put(struct json_writer *w, const char *key, struct service *s, struct owner *o);
// "usage", and with `all` "owners".
void usage_put_owners(struct json_writer *w, struct service *s, struct owner *o, bool all);
void usage_handle(void *service, struct http *h); // GET /v1/usage; of an administrator, all owners
