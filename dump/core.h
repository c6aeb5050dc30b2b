/* A core file, for target.c. What the core leaves out (code, mostly) is read from the files that it names. */
#ifndef DUMP_CORE_H
#define DUMP_CORE_H

#include "target.h"

/* Fills in target. exe may be NULL: then the file that the core names. */
void core_open(const char *core, const char *exe);

const void *core_at(uint64_t addr, size_t size);
bool core_read(uint64_t addr, void *to, size_t size);

#endif
