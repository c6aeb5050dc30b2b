/* Stands in for glibc's own header of this name, for tests that include it and need little or nothing of it. */
#pragma once
#include "atomic.h"
#include <pthread.h>
#define SIGCANCEL                      32
#define SIGSETXID                      33
#define PTHREAD_RWLOCK_READER_SHIFT    3
#define PTHREAD_RWLOCK_READER_OVERFLOW (1u << 31)
