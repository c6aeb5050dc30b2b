/* The size of the stack of a thread that asks for none: for test/environment. In whole units of 64 KiB, as there may be a few
 * KiB more for the frames of signals. */
#include "check.h"

static void *run(void *arg)
{
    pthread_attr_t attr;
    size_t size;

    ZERO(pthread_getattr_np(pthread_self(), &attr));
    ZERO(pthread_attr_getstacksize(&attr, &size));
    ZERO(pthread_attr_destroy(&attr));
    printf("%zu KiB\n", size / 65536 * 64);
    return arg;
}

int main(void)
{
    begin(10);
    join(start(run, NULL));
    return finish();
}
