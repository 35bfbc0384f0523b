// libcurl's functions, which only downloads use: it is loaded by the first (base/lazy.h). A function that is missing
// here is an undefined reference when Parley is linked.
#include "ws/hub/curl_lazy.h"

_Static_assert(sizeof CURL_SONAME > 1, "the Makefile finds the name in libcurl.so");
struct lazy_library curl_lazy = {.soname = CURL_SONAME};

LAZY_FUNCTION(curl_lazy, curl_easy_cleanup);
LAZY_FUNCTION(curl_lazy, curl_easy_getinfo);
LAZY_FUNCTION(curl_lazy, curl_easy_init);
LAZY_FUNCTION(curl_lazy, curl_easy_setopt);
LAZY_FUNCTION(curl_lazy, curl_easy_strerror);
LAZY_FUNCTION(curl_lazy, curl_free);
LAZY_FUNCTION(curl_lazy, curl_global_cleanup);
LAZY_FUNCTION(curl_lazy, curl_global_init);
LAZY_FUNCTION(curl_lazy, curl_multi_add_handle);
LAZY_FUNCTION(curl_lazy, curl_multi_cleanup);
LAZY_FUNCTION(curl_lazy, curl_multi_info_read);
LAZY_FUNCTION(curl_lazy, curl_multi_init);
LAZY_FUNCTION(curl_lazy, curl_multi_perform);
LAZY_FUNCTION(curl_lazy, curl_multi_poll);
LAZY_FUNCTION(curl_lazy, curl_multi_remove_handle);
LAZY_FUNCTION(curl_lazy, curl_multi_strerror);
LAZY_FUNCTION(curl_lazy, curl_slist_append);
LAZY_FUNCTION(curl_lazy, curl_slist_free_all);
LAZY_FUNCTION(curl_lazy, curl_url);
LAZY_FUNCTION(curl_lazy, curl_url_cleanup);
LAZY_FUNCTION(curl_lazy, curl_url_get);
LAZY_FUNCTION(curl_lazy, curl_url_set);
