/* futex by syscall(): wait, wake, bitsets, requeue, wake-op, time-outs, errors, and a mutex made of it. */
#include "check.h"
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum { THREADS = 12 };

static uint32_t word, second, mutex;
static int private = FUTEX_PRIVATE_FLAG;
static long counter;
static int awake;

static long futex(uint32_t *address, int op, uint32_t value, const void *timeout, uint32_t *other, uint32_t value3)
{
    return syscall(SYS_futex, address, op | private, value, timeout, other, value3);
}

static void *wait_word(void *arg)
{
    long bits = (intptr_t)arg;
    long r;

    do
        r = bits ? futex(&word, FUTEX_WAIT_BITSET, 0, NULL, NULL, (uint32_t)bits) : futex(&word, FUTEX_WAIT, 0, NULL, NULL, 0);
    while (r == -1 && errno == EINTR);
    EXPECT(r, 0);
    __atomic_add_fetch(&awake, 1, __ATOMIC_RELAXED);
    return arg;
}

static void start_all(pthread_t *threads, long first, long others)
{
    awake = 0;
    for (int i = 0; i < THREADS; i++)
        threads[i] = start_number(wait_word, i == 0 ? first : others);
}

static void join_all(pthread_t *threads)
{
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    EXPECT(awake, THREADS);
}

static void *use_mutex(void *arg)
{
    for (int i = 0; i < 300; i++) {
        uint32_t seen = 0;
        if (!__atomic_compare_exchange_n(&mutex, &seen, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
            if (seen != 2)
                seen = __atomic_exchange_n(&mutex, 2, __ATOMIC_ACQUIRE);
            while (seen != 0) {
                futex(&mutex, FUTEX_WAIT, 2, NULL, NULL, 0);
                seen = __atomic_exchange_n(&mutex, 2, __ATOMIC_ACQUIRE);
            }
        }
        long before = counter;
        if (i % 8 == 0)
            sched_yield();
        counter = before + 1;
        if (__atomic_exchange_n(&mutex, 0, __ATOMIC_RELEASE) == 2)
            futex(&mutex, FUTEX_WAKE, 1, NULL, NULL, 0);
    }
    return arg;
}

static void time_outs(void)
{
    struct timespec little = {0, 3000000}, none = {0, 0}, bad = {0, 1000000000}, negative = {-1, 0};

    int64_t before = now_ns(CLOCK_MONOTONIC);
    EXPECT_ERRNO(futex(&word, FUTEX_WAIT, 0, &little, NULL, 0), ETIMEDOUT);
    CHECK(now_ns(CLOCK_MONOTONIC) - before >= 3000000);
    EXPECT_ERRNO(futex(&word, FUTEX_WAIT, 0, &none, NULL, 0), ETIMEDOUT);
    EXPECT_ERRNO(futex(&word, FUTEX_WAIT, 0, &bad, NULL, 0), EINVAL);
    EXPECT_ERRNO(futex(&word, FUTEX_WAIT, 0, &negative, NULL, 0), EINVAL);
    EXPECT_ERRNO(futex(&word, FUTEX_WAIT, 1, NULL, NULL, 0), EAGAIN);
    EXPECT_ERRNO(futex(&word, FUTEX_WAIT, 1, &little, NULL, 0), EAGAIN);

    struct timespec at = in_ms(CLOCK_MONOTONIC, 3);
    EXPECT_ERRNO(futex(&word, FUTEX_WAIT_BITSET, 0, &at, NULL, FUTEX_BITSET_MATCH_ANY), ETIMEDOUT);
    CHECK(now_ns(CLOCK_MONOTONIC) >= at.tv_sec * INT64_C(1000000000) + at.tv_nsec);
    at = in_ms(CLOCK_REALTIME, 3);
    EXPECT_ERRNO(futex(&word, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, 0, &at, NULL, FUTEX_BITSET_MATCH_ANY), ETIMEDOUT);
    CHECK(now_ns(CLOCK_REALTIME) >= at.tv_sec * INT64_C(1000000000) + at.tv_nsec);
}

static void errors(void)
{
    EXPECT_ERRNO(futex(&word, FUTEX_WAIT_BITSET, 0, NULL, NULL, 0), EINVAL);
    EXPECT_ERRNO(futex(&word, FUTEX_WAKE_BITSET, 1, NULL, NULL, 0), EINVAL);
    EXPECT_ERRNO(futex((uint32_t *)((char *)&word + 1), FUTEX_WAIT, 0, NULL, NULL, 0), EINVAL);
    EXPECT_ERRNO(futex(NULL, FUTEX_WAIT, 0, NULL, NULL, 0), EFAULT);
    EXPECT_ERRNO(futex(&word, 99, 0, NULL, NULL, 0), ENOSYS);
    EXPECT_ERRNO(futex(&word, FUTEX_CMP_REQUEUE, 1, (void *)1, &second, 77), EAGAIN);
    EXPECT(futex(&word, FUTEX_WAKE, 1, NULL, NULL, 0), 0);
}

/* Wakes `at_most` at a time until THREADS have been woken in all; wakes no more than it was told. */
static void wake_all(uint32_t *address, int op, uint32_t at_most, uint32_t bits, int total)
{
    int woken = 0;

    while (woken < total) {
        long n = SYS(futex(address, op, at_most, NULL, NULL, bits));
        CHECK(n <= (long)at_most);
        woken += (int)n;
        sched_yield();
    }
    EXPECT(woken, total);
    EXPECT(futex(address, op, 1, NULL, NULL, bits), 0);
}

static void *all_kinds(void *arg)
{
    pthread_t threads[THREADS];

    time_outs();
    errors();

    start_all(threads, 0, 0);
    wake_all(&word, FUTEX_WAKE, 1, 0, THREADS);
    join_all(threads);
    start_all(threads, 0, 0);
    wake_all(&word, FUTEX_WAKE, INT32_MAX, 0, THREADS);
    join_all(threads);

    /* The first waits for bit 1, the others for bit 2 and 4. */
    start_all(threads, 1, 6);
    wake_all(&word, FUTEX_WAKE_BITSET, INT32_MAX, 4, THREADS - 1);
    EXPECT(futex(&word, FUTEX_WAKE_BITSET, INT32_MAX, NULL, NULL, 8 + 2), 0);
    wake_all(&word, FUTEX_WAKE_BITSET, INT32_MAX, 1, 1);
    join_all(threads);

    /* Moved, and then woken from there. */
    for (int compare = 0; compare < 2; compare++) {
        start_all(threads, 0, 0);
        for (int moved = 0; moved < THREADS; sched_yield())
            moved += (int)SYS(futex(&word, compare ? FUTEX_CMP_REQUEUE : FUTEX_REQUEUE, 0, (void *)INT32_MAX, &second, 0));
        /* The kernel may wake one for no reason while it moves them, or wake and move it (seen, rarely): then one fewer is
         * there. */
        int late = (int)SYS(futex(&word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0));
        int most = (int)SYS(futex(&second, FUTEX_WAKE, THREADS - 2, NULL, NULL, 0));
        int rest = (int)SYS(futex(&second, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0));
        CHECK(late <= 1 && (most == THREADS - 2 || most == THREADS - 3));
        CHECK(late + most + rest == THREADS || late + most + rest == THREADS - 1);
        for (; __atomic_load_n(&awake, __ATOMIC_RELAXED) < THREADS; sched_yield())
            SYS(futex(&word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0)); /* one that was counted twice, for one to come */
        join_all(threads);
    }

    /* Adds 5 to the second word, wakes one waiter of the first, and of the second if it was 0. */
    start_all(threads, 0, 0);
    for (int woken = 0; woken < THREADS; sched_yield()) {
        second = 0;
        woken += (int)SYS(futex(&word, FUTEX_WAKE_OP, 1, (void *)1, &second, FUTEX_OP(FUTEX_OP_ADD, 5, FUTEX_OP_CMP_EQ, 0)));
        EXPECT(second, 5);
    }
    second = 0;
    join_all(threads);

    counter = 0;
    in_threads(THREADS, use_mutex);
    EXPECT(counter, THREADS * 300);
    return arg;
}

int main(void)
{
    begin(20);
    all_kinds(NULL);
    puts("main");
    join(start(all_kinds, NULL));
    puts("thread");
    private = 0;
    join(start(all_kinds, NULL));
    puts("shared");
    return finish();
}
