/* What the tool prints. */
#ifndef DUMP_REPORT_H
#define DUMP_REPORT_H

#include <stdbool.h>
#include <stdint.h>

struct options {
    bool group;  /* threads that do the same together */
    bool frames; /* the library's own frames, too */
    bool json;
    uint32_t only; /* the thread with this id alone, as text; 0: all */
};

void report(const struct options *options);

#endif
