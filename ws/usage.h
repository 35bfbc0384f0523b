// What owners use and may use, for the wire: usage.get, GET /v1/usage.
#pragma once
#include "base/json.h"
#include "ws/net/http.h"
#include "ws/service.h"

// "usage", and with `all` "owners": {"owner","limits":{NAME:{"limit","used","refused"}}}.
void usage_put_owners(struct json_writer *w, struct service *s, struct owner *o, bool all);
void usage_handle(void *service, struct http *h); // GET /v1/usage; of an administrator, all owners
