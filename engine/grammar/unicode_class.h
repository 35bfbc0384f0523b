// Unicode's classes of characters, as \p{...} names them: general categories by their short and long names (L, Letter,
// Lu, gc=Lu), Any, ASCII, Assigned, and some of emoji. Characters that this version of Unicode does not assign belong to
// no class and to no complement: a later version may assign them.
#pragma once
#include "engine/grammar/chars.h"

// Adds the class to *s, or its complement. E_UNSUPPORTED: the class is unknown, or its complement is; E_NOMEM. Any
// thread.
int unicode_class_add(struct char_set *s, const char *name, size_t len, bool negated);
// Removes the characters that are not assigned from an ordered set. E_NOMEM.
int unicode_class_assigned(struct char_set *s);
