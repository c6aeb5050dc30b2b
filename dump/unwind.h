/* Stacks as return addresses, by libunwind, from the copies that engine.h has. Equal stacks are one object.
 */
#ifndef DUMP_UNWIND_H
#define DUMP_UNWIND_H

#include "engine.h"

struct stack {
    struct stack *next; /* of the same hash */
    uint32_t hash;
    uint32_t id; /* in the order in which they were found */
    uint32_t n;
    const char *trouble; /* why it may not be all, or NULL: it is complete */
    uint64_t ip[];       /* return addresses; with IP_EXACT: of the instruction itself */
};

#define IP_EXACT (UINT64_C(1) << 63) /* no address of the program's has it */

/* Sets t->stack of every thread, or of the one with this id if it is not 0. */
void unwind_all(uint32_t only);

/* The one stack that looks so. */
const struct stack *unwind_intern(const uint64_t *ip, uint32_t n, const char *trouble);

size_t unwind_stacks(void); /* how many different ones there are */

#endif
