// What `parley sessions doctor` found, on standard output.
#pragma once
#include "sessions/archive/doctor.h"

struct buf;

void doctor_report_print(const struct doctor_report *r);                 // for people, a line each
int doctor_report_write(const struct doctor_report *r, struct buf *out); // as one JSON object
