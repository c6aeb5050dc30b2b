/* Cancellation and pthread_exit through C++ frames: destructors run, catch (...) sees them and passes them
 * on. */
#include "check.h"
#include <atomic>
#include <cxxabi.h>
#include <exception>
#include <mutex>

static std::atomic<int> ended, caught, forced;
static gate waiting = GATE;
static int pipes[2];
static std::mutex mutex;

struct object {
    ~object()
    {
        sched_yield();
        ended++;
    }
};

static void block()
{
    char byte;

    gate_add(&waiting, 1);
    SYS(read(pipes[0], &byte, 1));
    FAIL("read returned in a thread that was cancelled");
}

static void leave()
{
    pthread_exit(reinterpret_cast<void *>(77));
}

static void descend(int depth, void (*at_bottom)())
{
    object o;

    try {
        if (depth == 0)
            at_bottom();
        else
            descend(depth - 1, at_bottom);
    } catch (abi::__forced_unwind &) {
        forced++;
        throw;
    } catch (...) {
        FAIL("caught as something else");
    }
}

static void *by_cancel(void *arg)
{
    try {
        descend(9, block);
    } catch (...) {
        caught++;
        throw;
    }
    return arg;
}

static void *by_exit(void *arg)
{
    /* A lock that is held is given back. */
    std::lock_guard<std::mutex> guard(mutex);
    try {
        descend(9, leave);
    } catch (...) {
        caught++;
        throw;
    }
    return arg;
}

/* Exceptions of one's own still work in a thread, at depth and after blocking. */
static void throw_int(int depth)
{
    object o;

    sched_yield();
    if (depth == 0)
        throw 42;
    throw_int(depth - 1);
}

static void *by_exception(void *arg)
{
    for (int i = 0; i < 20; i++) {
        try {
            throw_int(10);
            FAIL("nothing was thrown");
        } catch (int value) {
            EXPECT(value, 42);
            sched_yield();
            try {
                throw_int(3);
            } catch (...) {
                /* The one within; the one without is still there. */
                CHECK(std::uncaught_exceptions() == 0);
            }
        }
    }
    return arg;
}

int main()
{
    pthread_t threads[10];

    begin(20);
    SYS(pipe(pipes));
    for (auto &t : threads)
        t = start(by_cancel, nullptr);
    gate_wait(&waiting, 10);
    for (auto t : threads)
        ZERO(pthread_cancel(t));
    for (auto t : threads)
        CHECK(join(t) == PTHREAD_CANCELED);
    EXPECT(ended.load(), 100);
    EXPECT(forced.load(), 100);
    EXPECT(caught.load(), 10);
    puts("cancel");
    for (auto &t : threads)
        t = start(by_exit, nullptr);
    for (auto t : threads)
        EXPECT(reinterpret_cast<intptr_t>(join(t)), 77);
    EXPECT(ended.load(), 200);
    EXPECT(caught.load(), 20);
    puts("exit");
    in_threads(10, by_exception);
    EXPECT(ended.load(), 200 + 10 * 20 * (11 + 4));
    puts("exception");
    return finish();
}
