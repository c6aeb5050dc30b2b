/* Names, files and lines of addresses, by elfutils' libdwfl. */
#ifndef DUMP_SYMBOLS_H
#define DUMP_SYMBOLS_H

#include <stdbool.h>
#include <stdint.h>

struct symbol {
    const char *function; /* demangled; NULL: not known */
    uint64_t offset;      /* of the address in it; in the module's file if the function is not known */
    const char *file;     /* last part of the path; NULL: not known */
    const char *path;
    int line;
    const char *module; /* last part of the path; NULL: in none */
    bool ours;          /* in the library */
};

void symbols_open(bool lines);

/* Of code. ip as struct stack has it. The answer stays. */
const struct symbol *symbol_of(uint64_t ip);

/* Of data: name and offset of a variable; function is NULL if there is none. */
struct symbol symbol_of_data(uint64_t addr);

#endif
