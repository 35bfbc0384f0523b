// Unicode's classes of characters, as \\p{...} names them: general categories by their short and long names (L,
// Letter, Lu, gc=Lu), Any, ASCII, Assigned, and some of emoji. Characters that
// this version of Unicode does not assign belong to no class and to no complement: a later version may assign them.
#pragma once
#include "engine/grammar/chars.h"

// Adds the class to *s, or its complement. E_UNSUPPORTED: no class of this name is known, or its complement is not;
// E_NOMEM. Any thread.
int unicode_class_add(struct char_set *s, const char *name, size_t len, bool negated);
// Takes characters that are not assigned out of an ordered set. E_NOMEM.
int unicode_class_assigned(struct char_set *s);
