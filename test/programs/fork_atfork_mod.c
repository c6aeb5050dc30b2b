/* A library that the program needs, as an allocator may be: its handlers lock what its threads use, and run
 * after all that the program's constructors and preloaded libraries have registered. */
#include <pthread.h>

pthread_mutex_t mod_lock = PTHREAD_MUTEX_INITIALIZER;

static void prepare(void)
{
    pthread_mutex_lock(&mod_lock);
}

static void release(void)
{
    pthread_mutex_unlock(&mod_lock);
}

__attribute__((constructor)) static void construct(void)
{
    pthread_atfork(prepare, release, release);
}
