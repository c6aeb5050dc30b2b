/* Function-local statics whose initialiser sleeps or throws, and std::call_once that throws, with 100
 * waiters. */
#include "check.h"
#include <atomic>
#include <mutex>
#include <stdexcept>

static std::atomic<int> slow_built, fussy_tries, fussy_built, caught, call_tries;
static std::once_flag flag;

struct slow {
    int value;
    slow()
    {
        sleep_us(20000);
        value = ++slow_built;
    }
};

struct fussy {
    fussy()
    {
        sched_yield();
        if (++fussy_tries < 4)
            throw std::runtime_error("not yet");
        fussy_built++;
    }
};

static void *wait_slow(void *arg)
{
    static slow s;

    EXPECT(s.value, 1);
    return arg;
}

static void *retry_fussy(void *arg)
{
    for (;;) {
        try {
            static fussy f;
            EXPECT(fussy_built.load(), 1);
            return arg;
        } catch (const std::runtime_error &) {
            caught++;
        }
    }
}

static void *retry_call(void *arg)
{
    for (;;) {
        try {
            std::call_once(flag, [] {
                sched_yield();
                if (++call_tries < 4)
                    throw std::runtime_error("not yet");
            });
            EXPECT(call_tries.load(), 4);
            return arg;
        } catch (const std::runtime_error &) {
            caught++;
        }
    }
}

int main()
{
    begin(20);
    in_threads(100, wait_slow);
    puts("sleeps");
    in_threads(100, retry_fussy);
    EXPECT(caught.load(), 3);
    puts("throws");
    in_threads(100, retry_call);
    EXPECT(caught.load(), 6);
    puts("call_once");
    return finish();
}
