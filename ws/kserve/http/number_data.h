// Long arrays of numbers in JSON, such as tables of virtual tokens. A tree of JSON takes 64 bytes for a number and is
// limited in its values, so these arrays are emptied before the tree is made and read from the text. Any thread.
#pragma once
#include "ws/kserve/tensor.h"

#define NUMBER_DATA_LONG 4096 // characters

// A copy of text in which each member "data" whose value is an array of numbers, or of such arrays, and has at least
// `least` characters is [] and spaces. Other arrays stay as they are. free() it; NULL: no memory.
char *number_data_hollow(const char *text, size_t len, size_t least);
// Sets the elements of t, whose shape is known, from such an array, in order. Errors name the input.
int number_data_read(struct tensor *t, const char *array, struct err *err);
