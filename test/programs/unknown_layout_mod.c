/* Stands behind the library and makes barriers in a way of its own: a libc whose objects are not known. */
#include <pthread.h>
#include <string.h>

int pthread_barrier_init(pthread_barrier_t *barrier, const pthread_barrierattr_t *attr, unsigned count)
{
    (void)attr;
    memset(barrier, 0, sizeof *barrier);
    ((unsigned *)barrier)[6] = count;
    return 0;
}
