/* Tests of scheduler/wheel.h. */
#include "wheel.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MS UINT64_C(1000000)

/* For inner loops: Check's own assertions make a system call each. */
#define MUST(x)                                                                                                                \
    do {                                                                                                                       \
        if (!(x))                                                                                                              \
            ck_abort_msg("%s", #x);                                                                                            \
    } while (0)

static uint64_t rng_state = 88172645463325252U;

static uint64_t rng(void)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return rng_state;
}

/* A number of any magnitude. */
static uint64_t rng_log(void)
{
    return rng() >> (rng() % 64);
}

static uint64_t tick_of_deadline(uint64_t ns)
{
    return ns / VT_WHEEL_GRAIN + (ns % VT_WHEEL_GRAIN != 0);
}

static struct vt_wheel w;

static size_t length(const struct vt_timer *t)
{
    size_t n = 0;

    for (; t; t = t->next)
        n++;
    return n;
}

START_TEST(empty)
{
    vt_wheel_init(&w, 12345678);
    ck_assert_uint_eq(vt_wheel_next(&w), UINT64_MAX);
    ck_assert_ptr_null(vt_wheel_expire(&w, 99999999, 10));
    ck_assert_uint_eq(vt_wheel_next(&w), UINT64_MAX);
    ck_assert_uint_eq(vt_wheel_count(&w), 0);
}
END_TEST

START_TEST(not_early_and_a_tick_late_at_most)
{
    static const uint64_t deltas[] = {1,       VT_WHEEL_GRAIN - 1, VT_WHEEL_GRAIN, VT_WHEEL_GRAIN + 1, 2 * MS,
                                      10 * MS, 1000 * MS,          3600000 * MS};

    for (unsigned i = 0; i < sizeof(deltas) / sizeof(*deltas); i++) {
        struct vt_timer t = {0};
        uint64_t now = 1000 * MS + 77;
        uint64_t deadline = now + deltas[i];

        vt_wheel_init(&w, now);
        vt_wheel_add(&w, &t, deadline);
        ck_assert(vt_timer_armed(&t));
        ck_assert_uint_eq(t.deadline, deadline);
        ck_assert_uint_eq(vt_wheel_count(&w), 1);
        uint64_t next = vt_wheel_next(&w);
        ck_assert_uint_ge(next, deadline);
        ck_assert_uint_lt(next, deadline + VT_WHEEL_GRAIN);
        ck_assert_ptr_null(vt_wheel_expire(&w, deadline - 1, 10));
        ck_assert_ptr_null(vt_wheel_expire(&w, next - 1, 10));
        ck_assert_ptr_eq(vt_wheel_expire(&w, next, 10), &t);
        ck_assert(!vt_timer_armed(&t));
        ck_assert_ptr_null(t.next);
        ck_assert_uint_eq(vt_wheel_count(&w), 0);
    }
}
END_TEST

START_TEST(past_deadline_is_due_at_once)
{
    struct vt_timer t = {0}, u = {0};

    vt_wheel_init(&w, 1000 * MS);
    vt_wheel_add(&w, &t, 1 * MS);
    vt_wheel_add(&w, &u, 0);
    ck_assert_uint_le(vt_wheel_next(&w), 1000 * MS);
    ck_assert_uint_eq(length(vt_wheel_expire(&w, 1000 * MS, 10)), 2);
}
END_TEST

START_TEST(never)
{
    struct vt_timer t = {0}, u = {0};

    vt_wheel_init(&w, 5);
    vt_wheel_add(&w, &t, UINT64_MAX);
    ck_assert_uint_eq(vt_wheel_next(&w), UINT64_MAX);
    vt_wheel_add(&w, &u, UINT64_MAX - VT_WHEEL_GRAIN);
    ck_assert_uint_lt(vt_wheel_next(&w), UINT64_MAX);
    ck_assert_ptr_eq(vt_wheel_expire(&w, UINT64_MAX, 10), &u);
    ck_assert_ptr_null(vt_wheel_expire(&w, UINT64_MAX, 10));
    ck_assert(vt_timer_armed(&t));
    ck_assert_uint_eq(vt_wheel_count(&w), 1);
    ck_assert(vt_wheel_remove(&w, &t));
}
END_TEST

START_TEST(removing)
{
    struct vt_timer t[100];

    memset(t, 0, sizeof(t));
    vt_wheel_init(&w, 0);
    ck_assert(!vt_wheel_remove(&w, &t[0]));
    /* Several in a slot: first, last and middle ones go. */
    for (unsigned i = 0; i < 100; i++)
        vt_wheel_add(&w, &t[i], 10 * MS + i % 3 * 1000 * MS);
    for (unsigned i = 0; i < 100; i += 2)
        ck_assert(vt_wheel_remove(&w, &t[i]));
    for (unsigned i = 0; i < 100; i += 2)
        ck_assert(!vt_wheel_remove(&w, &t[i]));
    ck_assert_uint_eq(vt_wheel_count(&w), 50);
    for (unsigned i = 99; i < 100; i -= 2)
        ck_assert(vt_wheel_remove(&w, &t[i]));
    ck_assert_uint_eq(vt_wheel_count(&w), 0);
    ck_assert_uint_eq(vt_wheel_next(&w), UINT64_MAX);
}
END_TEST

START_TEST(at_most_max)
{
    static struct vt_timer t[1000];
    uint64_t last = 0;
    unsigned total = 0;

    memset(t, 0, sizeof(t));
    vt_wheel_init(&w, 0);
    for (unsigned i = 0; i < 1000; i++)
        vt_wheel_add(&w, &t[i], rng() % (100 * MS));
    ck_assert_ptr_null(vt_wheel_expire(&w, 100 * MS, 0));
    while (vt_wheel_next(&w) <= 101 * MS) {
        struct vt_timer *list = vt_wheel_expire(&w, 101 * MS, 7);

        ck_assert_uint_le(length(list), 7);
        for (; list; list = list->next) {
            ck_assert_uint_ge(tick_of_deadline(list->deadline), last);
            last = tick_of_deadline(list->deadline);
            total++;
        }
    }
    ck_assert_uint_eq(total, 1000);
}
END_TEST

/* Many timers that come down a level together: no call takes long, and those under way can be removed. */
START_TEST(bounded_work)
{
    static struct vt_timer t[20 * VT_WHEEL_WORK];
    unsigned n = sizeof(t) / sizeof(*t), calls = 0, total = 0, removed = 0;
    uint64_t now = 0;

    memset(t, 0, sizeof(t));
    vt_wheel_init(&w, 0);
    for (unsigned i = 0; i < n; i++)
        vt_wheel_add(&w, &t[i], 1000 * MS + (i & 1));
    while (vt_wheel_count(&w)) {
        uint64_t next = vt_wheel_next(&w);

        MUST(next < 1001 * MS);
        if (next > now)
            now = next;
        for (struct vt_timer *l = vt_wheel_expire(&w, now, 100); l; l = l->next)
            total++;
        if (++calls == 3)
            for (unsigned i = 0; i < n; i += 2)
                removed += vt_wheel_remove(&w, &t[i]);
        ck_assert_uint_lt(calls, n);
    }
    ck_assert_uint_gt(calls, 20);
    ck_assert_uint_eq(total + removed, n);
}
END_TEST

/* A waiter that sleeps until vt_wheel_next is woken once for a timer that is not removed ... */
START_TEST(one_wake_up_a_timer)
{
    struct vt_timer t = {0};

    for (unsigned i = 0; i < 10000; i++) {
        uint64_t now = rng_log() / 2;
        uint64_t deadline = now + rng_log() / 4 + 1;

        vt_wheel_init(&w, now);
        vt_wheel_add(&w, &t, deadline);
        now = vt_wheel_next(&w);
        MUST(now - deadline < VT_WHEEL_GRAIN);
        MUST(vt_wheel_expire(&w, now, 1) == &t);
    }
}
END_TEST

/* ... and by one that was removed not more often than once a level. */
START_TEST(few_wake_ups_for_removed_timers)
{
    struct vt_timer stays = {0}, goes = {0};

    for (unsigned i = 0; i < 10000; i++) {
        uint64_t now = rng_log() / 2;
        unsigned wakes = 0;

        vt_wheel_init(&w, now);
        uint64_t a = now + rng_log() / 4 + 1, b = now + rng_log() / 4 + 1;
        vt_wheel_add(&w, &stays, a);
        vt_wheel_add(&w, &goes, b);
        vt_wheel_remove(&w, &goes);
        while (vt_timer_armed(&stays)) {
            now = vt_wheel_next(&w);
            MUST(now < a + VT_WHEEL_GRAIN);
            vt_wheel_expire(&w, now, 10);
            wakes++;
        }
        MUST(wakes <= VT_WHEEL_LEVELS);
    }
}
END_TEST

/* --- a million operations against an array ---------------------------------------------------------- */

#define N          200
#define OPERATIONS 1000000

static struct vt_timer timers[N];
static struct {
    bool armed;
    uint64_t tick;
} model[N];

static uint64_t model_earliest(void)
{
    uint64_t tick = UINT64_MAX;

    for (unsigned i = 0; i < N; i++)
        if (model[i].armed && model[i].tick < tick)
            tick = model[i].tick;
    return tick;
}

static void model_run(uint64_t now, uint64_t (*distance)(void), unsigned operations)
{
    size_t count = 0;
    uint64_t order = 0; /* the tick before which nothing may expire any more */
    const uint64_t last = UINT64_C(1) << (64 - VT_WHEEL_SHIFT);

    memset(timers, 0, sizeof(timers));
    memset(model, 0, sizeof(model));
    vt_wheel_init(&w, now);
    for (unsigned op = 0; op < operations; op++) {
        unsigned i = (unsigned)(rng() % N);
        uint64_t what = rng() % 8;

        if (what < 4) {
            if (model[i].armed)
                continue;
            uint64_t d = distance(), deadline = now + d;
            if (deadline < now)
                deadline = UINT64_MAX;
            if (rng() % 16 == 0)
                deadline = now - (d < now ? d : now);
            vt_wheel_add(&w, &timers[i], deadline);
            model[i].armed = true;
            model[i].tick = tick_of_deadline(deadline);
            if (model[i].tick < w.tick)
                model[i].tick = w.tick;
            count++;
        } else if (what < 6) {
            MUST(vt_wheel_remove(&w, &timers[i]) == model[i].armed);
            count -= model[i].armed;
            model[i].armed = false;
        } else {
            size_t max = rng() % 64 ? rng() % 20 : N;
            uint64_t next = vt_wheel_next(&w);

            switch (rng() % 4) {
            case 0: /* as far as a waiter would have slept */
                if (next != UINT64_MAX && next > now)
                    now = next;
                break;
            case 1: /* just not as far */
                if (next != UINT64_MAX && next - 1 > now)
                    now = next - 1;
                break;
            default: {
                uint64_t d = distance();
                if (now + d > now)
                    now += d;
            }
            }
            struct vt_timer *list = vt_wheel_expire(&w, now, max);
            size_t got = 0;
            while (list) {
                struct vt_timer *t = list;
                unsigned k = (unsigned)(t - timers);

                list = t->next;
                MUST(k < N);
                MUST(model[k].armed && !vt_timer_armed(t));
                MUST(t->deadline <= now);
                MUST(model[k].tick <= now / VT_WHEEL_GRAIN);
                MUST(model[k].tick >= order);
                order = model[k].tick;
                model[k].armed = false;
                got++;
            }
            count -= got;
            MUST(got <= max);
            /* There are too few timers for a call to reach its bound of work. */
            if (got < max)
                MUST(model_earliest() > now / VT_WHEEL_GRAIN);
            order = w.tick;
        }
        MUST(vt_wheel_count(&w) == count);
        uint64_t next = vt_wheel_next(&w), earliest = model_earliest();
        if (!count)
            MUST(next == UINT64_MAX);
        else if (earliest < last)
            MUST(next <= earliest * VT_WHEEL_GRAIN);
    }
}

static uint64_t near_future(void)
{
    return rng() % (200 * MS);
}

static uint64_t any_future(void)
{
    /* Mostly up to hours, at times up to the end. */
    return rng() % 512 ? rng() >> (20 + rng() % 44) : rng_log();
}

static uint64_t seconds(void)
{
    return rng() % (10000 * MS);
}

START_TEST(model_near)
{
    model_run(3 * MS, near_future, OPERATIONS);
}
END_TEST

START_TEST(model_seconds)
{
    model_run(123456789 * MS, seconds, OPERATIONS);
}
END_TEST

START_TEST(model_far)
{
    /* Many short lives, as the clock soon comes to its end. */
    for (unsigned i = 0; i < 1000; i++)
        model_run(i % 2 ? 0 : rng_log(), any_future, OPERATIONS / 1000);
}
END_TEST

/* --- cost ------------------------------------------------------------------------------------------- */

static double now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Asserts nothing about time: numbers for the log. */
START_TEST(cost)
{
    enum { MILLION = 1000000 };
    /* As far apart as they are in a thread's descriptor. */
    struct padded {
        struct vt_timer t;
        char pad[232];
    } *p = calloc(MILLION, sizeof(*p));
    struct vt_timer *t = calloc(MILLION, sizeof(*t));

    ck_assert_ptr_nonnull(p);
    ck_assert_ptr_nonnull(t);
    memset(p, 0, MILLION * sizeof(*p));
    memset(t, 0, MILLION * sizeof(*t));
    for (int round = 0; round < 3; round++) {
        for (int wide = 0; wide < 2; wide++) {
            uint64_t base = 1000 * MS + (uint64_t)round * 3777 * MS, now = base;
            size_t total = 0;

            vt_wheel_init(&w, base);
            double a = now_ns();
            for (size_t i = 0; i < MILLION; i++)
                vt_wheel_add(&w, wide ? &p[i].t : &t[i], base + 10 * i + 10 * MS);
            double b = now_ns();
            while (vt_wheel_count(&w)) {
                uint64_t next = vt_wheel_next(&w);

                if (next > now)
                    now = next;
                for (struct vt_timer *l = vt_wheel_expire(&w, now, 256); l; l = l->next)
                    total++;
            }
            double c = now_ns();
            ck_assert_uint_eq(total, MILLION);
            for (size_t i = 0; i < MILLION; i++)
                vt_wheel_add(&w, wide ? &p[i].t : &t[i], now + 10 * MS);
            double d = now_ns();
            for (size_t i = 0; i < MILLION; i++)
                vt_wheel_remove(&w, wide ? &p[i].t : &t[i]);
            double e = now_ns();
            if (round == 2)
                printf("a million of 10 ms, %s: add %.1f ns, expire %.1f ns; at once: add %.1f ns, remove "
                       "%.1f ns\n",
                       wide ? "256 bytes apart" : "packed", (b - a) / MILLION, (c - b) / MILLION, (d - c) / MILLION,
                       (e - d) / MILLION);
        }
    }
    /* The usual life of a time-out: armed, and removed soon. */
    double a = now_ns();
    for (size_t i = 0; i < MILLION; i++) {
        vt_wheel_add(&w, &t[i % 64], w.tick * VT_WHEEL_GRAIN + 10 * MS + i * 64);
        vt_wheel_remove(&w, &t[i % 64]);
    }
    printf("add and remove: %.1f ns\n", (now_ns() - a) / MILLION);
    free(p);
    free(t);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("wheel");
    TCase *c = tcase_create("wheel");

    tcase_set_timeout(c, 120);
    tcase_add_test(c, empty);
    tcase_add_test(c, not_early_and_a_tick_late_at_most);
    tcase_add_test(c, past_deadline_is_due_at_once);
    tcase_add_test(c, never);
    tcase_add_test(c, removing);
    tcase_add_test(c, at_most_max);
    tcase_add_test(c, bounded_work);
    tcase_add_test(c, one_wake_up_a_timer);
    tcase_add_test(c, few_wake_ups_for_removed_timers);
    tcase_add_test(c, model_near);
    tcase_add_test(c, model_seconds);
    tcase_add_test(c, model_far);
    tcase_add_test(c, cost);
    suite_add_tcase(s, c);

    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
