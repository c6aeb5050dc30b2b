/* Recursion to the bottom of large stacks, whatever RLIMIT_STACK says: it is for main, and for threads that ask for none. */
#include "check.h"
#include <sys/resource.h>

static size_t asked;

__attribute__((noinline)) static size_t recurse(const char *top, size_t bytes)
{
    volatile char frame[4096];

    for (size_t i = 0; i < sizeof frame; i += 512)
        frame[i] = (char)bytes;
    if ((size_t)(top - (char *)frame) >= bytes)
        return 1;
    return recurse(top, bytes) + (size_t)(frame[512] == (char)bytes);
}

static void *run(void *arg)
{
    char here = 0;

    /* But for what the thread's own bookkeeping takes, and the last frame. */
    size_t deep = recurse(&here, asked - 32768);
    CHECK(deep > asked / 16384);
    return arg;
}

static void with_size(size_t mib)
{
    pthread_attr_t attr;
    pthread_t threads[2];

    asked = mib << 20;
    ZERO(pthread_attr_init(&attr));
    ZERO(pthread_attr_setstacksize(&attr, asked));
    for (int i = 0; i < 2; i++)
        ZERO(pthread_create(&threads[i], &attr, run, NULL));
    for (int i = 0; i < 2; i++)
        join(threads[i]);
    ZERO(pthread_attr_destroy(&attr));
    printf("%zu MiB\n", mib);
}

int main(int argc, char **argv)
{
    struct rlimit limit;

    begin(60);
    if (argc == 1) { /* begin again with little */
        SYS(getrlimit(RLIMIT_STACK, &limit));
        limit.rlim_cur = 1 << 20;
        SYS(setrlimit(RLIMIT_STACK, &limit));
        SYS(execl("/proc/self/exe", argv[0], "limited", NULL));
    }
    SYS(getrlimit(RLIMIT_STACK, &limit));
    EXPECT(limit.rlim_cur, 1 << 20);
    with_size(64);
    with_size(256);
    return finish();
}
