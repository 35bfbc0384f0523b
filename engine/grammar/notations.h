// The notations: each compiles a text to a network, which net_finish completes. Pure functions of the
// text, any thread. E_INVAL: the text is malformed; E_UNSUPPORTED: it uses what is not supported; E_NOMEM.
// *err says where. What the network itself refuses (too large) may also show in net_finish alone.
#pragma once
#include "engine/grammar/net.h"

int schema_compile(struct net *net, const char *text, size_t len, struct err *err);
int gbnf_compile(struct net *net, const char *text, size_t len, struct err *err);
int regex_compile(struct net *net, const char *text, size_t len, struct err *err);
int choice_compile(struct net *net, const char *text, size_t len, struct err *err);
