// libcurl, loaded by its first function. lazy_open says whether it is there.
#pragma once
#include "base/lazy.h"

extern struct lazy_library curl_lazy;
