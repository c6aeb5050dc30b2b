/* Stacks of the size asked for and of the caller's own: all of it can be used, and pthread_getattr_np tells
 * the truth. */
#include "check.h"
#include <limits.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/resource.h>

static size_t asked;
static char *own;

/* Touches the stack down to about `bytes` below the caller's frame, at `steps` places. */
__attribute__((noinline)) static void touch(size_t bytes, size_t steps)
{
    volatile char *here = (volatile char *)__builtin_frame_address(0);

    for (size_t i = 1; i <= steps; i++)
        here[-(ptrdiff_t)(bytes / steps * i)] = (char)i;
}

__attribute__((noinline)) static long recurse(long bytes)
{
    volatile char frame[1024];

    frame[0] = (char)bytes;
    frame[1023] = 1;
    if (bytes <= 2048)
        return frame[1023];
    return recurse(bytes - 1024 - 64) + frame[1023];
}

static void *run(void *arg)
{
    pthread_attr_t attr;
    void *low;
    size_t size, guard, stacksize;
    char here;

    ZERO(pthread_getattr_np(pthread_self(), &attr));
    ZERO(pthread_attr_getstack(&attr, &low, &size));
    ZERO(pthread_attr_getstacksize(&attr, &stacksize));
    ZERO(pthread_attr_getguardsize(&attr, &guard));
    ZERO(pthread_attr_destroy(&attr));
    EXPECT(stacksize, size);
    CHECK(&here > (char *)low && &here < (char *)low + size);
    if (size < asked)
        FAIL("the stack has %zu bytes, asked for were %zu", size, asked);
    if (own) {
        CHECK(low == own);
        EXPECT(size, asked);
        CHECK(&here > own && &here < own + asked);
    }
    /* What the thread's own bookkeeping may take off the size, as with glibc. */
    size_t spare = 8192, usable = asked - spare;
    touch(usable - 2048, asked > 8 << 20 ? 16 : usable / 4096 + 1);
    if (asked <= 8 << 20)
        CHECK(recurse((long)usable - 4096) > 0);
    /* Whatever lies above the guard is there. */
    volatile char *lowest = (char *)low + (own ? 0 : guard);
    CHECK(lowest < &here);
    *lowest = 1;
    EXPECT(*lowest, 1);
    return arg;
}

static void with_size(size_t size)
{
    pthread_attr_t attr;
    pthread_t t;

    asked = size;
    ZERO(pthread_attr_init(&attr));
    ZERO(pthread_attr_setstacksize(&attr, size));
    for (int i = 0; i < 3; i++) {
        ZERO(pthread_create(&t, &attr, run, NULL));
        join(t);
    }
    ZERO(pthread_attr_destroy(&attr));
    printf("%zu KiB\n", size / 1024);
}

static void with_own(size_t size)
{
    pthread_attr_t attr;
    pthread_t t;

    asked = size;
    char *area = mmap(NULL, size + 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(area != MAP_FAILED);
    memset(area, 0x5a, 4096);
    memset(area + 4096 + size, 0x5a, 4096);
    own = area + 4096;
    ZERO(pthread_attr_init(&attr));
    ZERO(pthread_attr_setstack(&attr, own, size));
    for (int i = 0; i < 3; i++) {
        ZERO(pthread_create(&t, &attr, run, NULL));
        join(t);
    }
    ZERO(pthread_attr_destroy(&attr));
    for (int i = 0; i < 4096; i++)
        CHECK(area[i] == 0x5a && area[4096 + size + (size_t)i] == 0x5a);
    own = NULL;
    /* Joined: nothing may touch it any more. */
    SYS(munmap(area, size + 8192));
    printf("own %zu KiB\n", size / 1024);
}

static void *default_size(void *arg)
{
    pthread_attr_t attr;
    size_t size;

    ZERO(pthread_getattr_np(pthread_self(), &attr));
    ZERO(pthread_attr_getstacksize(&attr, &size));
    CHECK(size >= *(size_t *)arg);
    return arg;
}

static void defaults(void)
{
    pthread_attr_t attr;
    size_t size, guard;
    struct rlimit limit;

    ZERO(pthread_attr_init(&attr));
    ZERO(pthread_attr_getstacksize(&attr, &size));
    SYS(getrlimit(RLIMIT_STACK, &limit));
    if (limit.rlim_cur != RLIM_INFINITY)
        EXPECT(size, limit.rlim_cur);
    ZERO(pthread_attr_getguardsize(&attr, &guard));
    EXPECT(guard, sysconf(_SC_PAGESIZE));
    join(start(default_size, &size));
    EXPECT_ERROR(pthread_attr_setstacksize(&attr, PTHREAD_STACK_MIN - 1), EINVAL);
    ZERO(pthread_attr_destroy(&attr));

    size = 1 << 20;
    ZERO(pthread_getattr_default_np(&attr));
    ZERO(pthread_attr_setstacksize(&attr, size));
    ZERO(pthread_setattr_default_np(&attr));
    ZERO(pthread_attr_destroy(&attr));
    ZERO(pthread_getattr_default_np(&attr));
    size_t got;
    ZERO(pthread_attr_getstacksize(&attr, &got));
    EXPECT(got, size);
    ZERO(pthread_attr_destroy(&attr));
    asked = size;
    join(start(run, NULL));
    puts("defaults");
}

static void main_stack(void)
{
    pthread_attr_t attr;
    void *low;
    size_t size;
    char here;

    ZERO(pthread_getattr_np(pthread_self(), &attr));
    ZERO(pthread_attr_getstack(&attr, &low, &size));
    CHECK(&here > (char *)low && &here < (char *)low + size);
    ZERO(pthread_attr_destroy(&attr));
    puts("main");
}

int main(void)
{
    begin(30);
    main_stack();
    with_size(PTHREAD_STACK_MIN);
    for (size_t kib = 32; kib <= 1 << 20; kib *= 2)
        with_size(kib * 1024);
    with_size(100 * 1024);
    with_own(PTHREAD_STACK_MIN);
    with_own(64 * 1024);
    with_own(1 << 20);
    defaults();
    return finish();
}
