/* An allocator in the program that locks a mutex and looks up the next one by dlsym. */
#include "check.h"
#include <dlfcn.h>

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static void *(*next_malloc)(size_t);
static void *(*next_calloc)(size_t, size_t);
static void *(*next_realloc)(void *, size_t);
static void (*next_free)(void *);
static long calls;

/* For what dlsym itself asks for while the next allocator is being looked up. */
static _Alignas(16) char early[8192];
static size_t early_used;
static volatile int looking;

static void *from_early(size_t size)
{
    void *p = early + early_used;

    early_used += (size + 15) & ~(size_t)15;
    if (early_used > sizeof early)
        abort();
    return p;
}

static int is_early(const void *p)
{
    return (const char *)p >= early && (const char *)p < early + sizeof early;
}

static void enter(void)
{
    pthread_mutex_lock(&lock);
    calls++;
    if (next_free || looking)
        return;
    looking = 1;
    next_malloc = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    next_calloc = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "calloc");
    next_realloc = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
    next_free = (void (*)(void *))dlsym(RTLD_NEXT, "free");
    looking = 0;
}

static void leave(void)
{
    pthread_mutex_unlock(&lock);
}

void *malloc(size_t size)
{
    enter();
    void *p = looking ? from_early(size) : next_malloc(size);
    leave();
    return p;
}

void *calloc(size_t n, size_t size)
{
    enter();
    void *p = looking ? from_early(n * size) : next_calloc(n, size);
    leave();
    return p;
}

void *realloc(void *old, size_t size)
{
    enter();
    void *p;
    if (is_early(old)) {
        p = next_malloc(size);
        memcpy(p, old, size);
    } else {
        p = looking ? from_early(size) : next_realloc(old, size);
    }
    leave();
    return p;
}

void free(void *p)
{
    enter();
    if (!looking && !is_early(p))
        next_free(p);
    leave();
}

static void *run(void *arg)
{
    for (int i = 1; i < 400; i++) {
        char *p = malloc((size_t)i);
        memset(p, i, (size_t)i);
        if (i % 16 == 0)
            sched_yield();
        p = realloc(p, 2 * (size_t)i);
        EXPECT((unsigned char)p[i - 1], (unsigned char)i);
        free(p);
        free(calloc(3, (size_t)i));
    }
    return arg;
}

int main(void)
{
    begin(20);
    in_threads(16, run);
    in_threads(16, run);
    CHECK(calls > 16 * 400 * 4);
    return finish();
}
