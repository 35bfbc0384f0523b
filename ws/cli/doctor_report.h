// Prints the result of `parley sessions doctor` on standard output.
#pragma once
#include "sessions/archive/doctor.h"

struct buf;

void doctor_report_print(const struct doctor_report *r); // as text, one fault a line
int doctor_report_write(const struct doctor_report *r, struct buf *out); // as one JSON object
