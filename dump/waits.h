/* What a thread waits for, in words. */
#ifndef DUMP_WAITS_H
#define DUMP_WAITS_H

#include "engine.h"

/* The operation on a descriptor: "read", "accept", "poll for input"; NULL if it is none. */
const char *wait_operation(const struct thread *t);

/* "mutex 0x55.. (lock), held by 4194305 "a""; without what differs from thread to thread if general. */
void wait_text(const struct thread *t, bool general, char *to, size_t size);

/* Whom t waits for: the holder of the lock, the thread to be joined. NULL: nobody in particular, or not
 * known. */
struct thread *wait_whom(const struct thread *t);

/* Calls f for each circle of threads that wait for one another. Returns how many there are. */
size_t wait_circles(void (*f)(struct thread *const *threads, size_t n));

#endif
