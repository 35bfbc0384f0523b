// cmocka's checks, and the four headers that must come before it.
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// A comment keeps clang-format from sorting it in among them.
#include <cmocka.h>
