// Rows of a table of settings (config.h) by type, for the files that have such a table. SETTINGS is
// theirs to define: the struct whose fields have the rows' names.
#pragma once
#include "base/config.h"

#define TEXT(section, name, fallback, metavar, help)                                               \
    { section, #name, CONFIG_STRING, offsetof(SETTINGS, name), 0, 0, metavar, fallback, help, 0 }
#define BOOL(section, name, fallback, help)                                                        \
    { section, #name, CONFIG_BOOL, offsetof(SETTINGS, name), 0, 0, NULL, fallback, help, 0 }
#define INT(section, name, min, max, fallback, help)                                               \
    { section, #name, CONFIG_INT, offsetof(SETTINGS, name), min, max, NULL, fallback, help, 0 }
#define FLOAT(section, name, min, max, fallback, help)                                             \
    { section, #name, CONFIG_FLOAT, offsetof(SETTINGS, name), min, max, NULL, fallback, help, 0 }
#define BYTES(section, name, min, max, fallback, help)                                             \
    { section, #name, CONFIG_BYTES, offsetof(SETTINGS, name), min, max, NULL, fallback, help, 0 }
#define CHOICE(section, name, choices, fallback, help)                                             \
    { section, #name, CONFIG_CHOICE, offsetof(SETTINGS, name), 0, 0, choices, fallback, help, 0 }
