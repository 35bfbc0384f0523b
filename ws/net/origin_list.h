// Checks of allowed_origins and allowed_hosts: an entry that no browser ever sends is refused at start, because a page
// that it should let in would be refused without a reason.
#pragma once
#include "base/err.h"

// E_INVAL names the first entry that matches no Origin header, and says how to write it.
int origin_list_check(const char *list, struct err *err);
// The same for Host headers.
int host_list_check(const char *list, struct err *err);
