// Arrays that grow. The macros take the array's own pointer: ARRAY_RESERVE(t->ids, t->cap, n).
// Elements are copied bytewise; a failure (E_NOMEM) changes nothing.
#pragma once
#include <stddef.h>

// Makes room for exactly n elements of `each` bytes. `array` is the address of the pointer.
int array_resize(void *array, size_t n, size_t each);
// Makes room for at least n: *cap doubles until it suffices, from ARRAY_FIRST on.
int array_reserve(void *array, size_t *cap, size_t n, size_t each);
#define ARRAY_FIRST 8

#define ARRAY_RESIZE(array, n) array_resize(&(array), (n), sizeof *(array))
#define ARRAY_RESERVE(array, cap, n) array_reserve(&(array), &(cap), (n), sizeof *(array))
