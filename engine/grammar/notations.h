// The notations: each compiles a text to a network, which net_finish completes. Pure functions of the
// text, any thread. E_INVAL: malformed text; E_UNSUPPORTED: an unsupported feature; E_NOMEM. *err names the
// place. The network's own errors (too large) may be reported only by net_finish.
#pragma once
#include "engine/grammar/net.h"

int schema_compile(struct net *net, const char *text, size_t len, struct err *err);
int gbnf_compile(struct net *net, const char *text, size_t len, struct err *err);
int regex_compile(struct net *net, const char *text, size_t len, struct err *err);
int choice_compile(struct net *net, const char *text, size_t len, struct err *err);
