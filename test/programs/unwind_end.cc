/*
 * A back trace ends at the thread's entry: every frame lies in a known object and the thread's function is
 * near the end. Exceptions that nobody catches end the process (with the argument "uncaught").
 */
#include "check.h"
#include <dlfcn.h>
#include <exception>
#include <execinfo.h>
#include <signal.h>
#include <sys/resource.h>
#include <unwind.h>

enum { DEPTH = 10, MOST = 100 };

static void *by_backtrace(void *);

static int frames_after_entry(void *const *frames, int n, void *entry)
{
    Dl_info info;
    int at = -1;

    for (int i = 0; i < n; i++) {
        if (!dladdr(frames[i], &info))
            FAIL("frame %d of %d is nowhere", i, n);
        /* The entry: this program's function of a thread, found by its extent. */
        char *pc = static_cast<char *>(frames[i]), *low = static_cast<char *>(entry);
        if (pc > low && pc < low + 4096 && at < 0)
            at = i;
    }
    if (at < 0)
        FAIL("the thread's function is not among the %d frames", n);
    return n - 1 - at;
}

__attribute__((noinline)) static int deep(int depth, void **frames)
{
    volatile int keep = depth;

    if (depth == 0) {
        sched_yield();
        return backtrace(frames, MOST);
    }
    int n = deep(depth - 1, frames);
    return n + (keep - depth);
}

static void check(void *const *frames, int n, void *entry)
{
    if (n < DEPTH + 2 || n >= MOST)
        FAIL("%d frames", n);
    int after = frames_after_entry(frames, n, entry);
    /* What starts a thread takes some frames, but few. */
    if (after > 4)
        FAIL("%d frames beyond the thread's function", after);
}

__attribute__((noinline, aligned(4096))) static void *by_backtrace(void *arg)
{
    void *frames[MOST];

    for (int i = 0; i < 10; i++)
        check(frames, deep(DEPTH, frames), reinterpret_cast<void *>(by_backtrace));
    return arg;
}

struct walk {
    void *frames[MOST];
    int n;
};

static _Unwind_Reason_Code step(_Unwind_Context *context, void *arg)
{
    walk *w = static_cast<walk *>(arg);

    void *pc = reinterpret_cast<void *>(_Unwind_GetIP(context));

    /* The unwinder gives a last frame at 0, which backtrace() drops. */
    if (w->n < MOST && pc)
        w->frames[w->n++] = pc;
    return _URC_NO_REASON;
}

static __thread walk in_handler;

static void on_signal(int)
{
    in_handler.n = 0;
    _Unwind_Backtrace(step, &in_handler);
}

/* From a signal handler, over the frame that the kernel made. */
__attribute__((noinline, aligned(4096))) static void *by_signal(void *arg)
{
    for (int i = 0; i < 10; i++) {
        ZERO(raise(SIGUSR1));
        CHECK(in_handler.n >= 3 && in_handler.n < MOST);
        CHECK(frames_after_entry(in_handler.frames, in_handler.n, reinterpret_cast<void *>(by_signal)) <= 4);
    }
    return arg;
}

static void *throw_uncaught(void *)
{
    throw 42;
}

static void *leave_noexcept(void *arg)
{
    []() noexcept { pthread_exit(nullptr); }();
    return arg;
}

int main(int argc, char **argv)
{
    begin(20);
    if (argc > 1) {
        rlimit none = {0, 0};
        SYS(setrlimit(RLIMIT_CORE, &none));
        std::set_terminate([] {
            /* On the thread that threw, with the exception at hand. */
            puts(std::current_exception() ? "terminate: an exception" : "terminate: none");
            abort();
        });
        join(start(strcmp(argv[1], "uncaught") == 0 ? throw_uncaught : leave_noexcept, nullptr));
        FAIL("the process has gone on");
    }
    struct sigaction action = {};
    action.sa_handler = on_signal;
    SYS(sigaction(SIGUSR1, &action, nullptr));
    void *first[4];
    backtrace(first, 4); /* loads the unwinder outside of any handler */
    in_threads(8, by_backtrace);
    puts("backtrace");
    in_threads(8, by_signal);
    puts("signal");
    return finish();
}
