/* Permits, and the queues by address, in kernel and virtual threads together. The loop index is the number of carriers less
 * one. */
#include "engine.h"

/* --- permits --------------------------------------------------------------------------------------------------------- */

static void permit_rules(void)
{
    struct vt_thread *me = vt_current();
    /* Early: not lost. Several are one. */
    vt_unblock(me);
    vt_unblock(me);
    vt_unblock(me);
    uint64_t before = vt_now();
    vt_block(VT_NEVER);
    vt_block(before + 20 * MS);
    HOLDS(vt_now() >= before + 20 * MS);
    /* A deadline that has passed. */
    vt_block(1);
    /* Not lost by a time-out either. */
    vt_unblock(me);
    vt_block(1);
    before = vt_now();
    vt_block(before + 5 * MS);
    HOLDS(vt_now() >= before + 5 * MS);
}

static void *rules_thread(void *arg)
{
    permit_rules();
    return arg;
}

START_TEST(permits)
{
    engine_start(_i + 1, 64, VT_IO_AUTO);
    permit_rules();
    for (int i = 0; i < 4; i++)
        ck_assert_ptr_eq(join(spawn(rules_thread, &i)), &i);
}
END_TEST

struct player {
    struct vt_thread *_Atomic thread;
    struct player *next;
    _Atomic uint32_t ball; /* how often it has come */
    uint32_t rounds;
};

static void *play(void *arg)
{
    struct player *p = arg;
    atomic_store(&p->thread, vt_current());
    for (uint32_t i = 1; i <= p->rounds; i++) {
        while (atomic_load_explicit(&p->ball, memory_order_acquire) < i)
            vt_block(VT_NEVER);
        struct vt_thread *next;
        while (!(next = atomic_load(&p->next->thread)))
            vt_yield();
        atomic_fetch_add_explicit(&p->next->ball, 1, memory_order_release);
        vt_unblock(next);
    }
    return NULL;
}

/* A ring of players, the last of which is the main thread; several balls. */
START_TEST(rings)
{
    enum { PLAYERS = 8 };
    static struct player players[PLAYERS + 1];
    struct vt_thread *threads[PLAYERS];
    pthread_t kernel;
    engine_start(_i + 1, 64, VT_IO_AUTO);
    for (int i = 0; i <= PLAYERS; i++)
        players[i] = (struct player){.next = &players[(i + 1) % (PLAYERS + 1)], .rounds = 3000};
    players[0].ball = players[3].ball = 1;
    for (int i = 0; i < PLAYERS - 1; i++)
        threads[i] = spawn(play, &players[i]);
    ck_assert_int_eq(pthread_create(&kernel, NULL, play, &players[PLAYERS - 1]), 0);
    play(&players[PLAYERS]);
    for (int i = 0; i < PLAYERS - 1; i++)
        join(threads[i]);
    pthread_join(kernel, NULL);
}
END_TEST

/* Everybody sends to anybody; a wake-up that is lost is a hang. */
enum { CROWD = 40, LETTERS = 2000 };
static struct {
    struct vt_thread *thread;
    _Atomic uint32_t inbox;
} crowd[CROWD];
static _Atomic uint32_t crowd_go, undelivered;

static void *crowd_member(void *arg)
{
    unsigned me = (unsigned)(uintptr_t)arg;
    uint32_t random = me + 1;
    await_count(&crowd_go, 1);
    for (int sent = 0;;) {
        uint32_t got = atomic_exchange(&crowd[me].inbox, 0);
        if (got && atomic_fetch_sub(&undelivered, got) == got)
            for (int i = 0; i < CROWD; i++)
                vt_unblock(crowd[i].thread);
        if (sent < LETTERS) {
            unsigned to = any(&random, CROWD);
            atomic_fetch_add(&crowd[to].inbox, 1);
            vt_unblock(crowd[to].thread);
            sent++;
            if (any(&random, 16) == 0)
                vt_block(vt_now() + any(&random, 100) * US);
        } else if (!got) {
            if (atomic_load(&undelivered) == 0)
                return NULL;
            vt_block(VT_NEVER);
        }
    }
}

START_TEST(crowds)
{
    engine_start(_i + 1, 64, VT_IO_AUTO);
    undelivered = CROWD * LETTERS;
    for (int i = 0; i < CROWD; i++)
        crowd[i].thread = spawn(crowd_member, (void *)(uintptr_t)i);
    add_count(&crowd_go, 1);
    for (int i = 0; i < CROWD; i++)
        join(crowd[i].thread);
}
END_TEST

/* --- queues ------------------------------------------------------------------------------------------------------------ */

static _Atomic uint32_t word, other, steps, order[64];

static void *results(void *arg)
{
    (void)arg;
    atomic_store(&word, 5);
    EQUALS(vt_park(&word, 4, VT_NEVER, VT_BITS_ALL, 0), EAGAIN);
    uint64_t at = vt_now() + 10 * MS;
    EQUALS(vt_park(&word, 5, at, VT_BITS_ALL, 0), ETIMEDOUT);
    HOLDS(vt_now() >= at);
    EQUALS(vt_park(&word, 5, 1, VT_BITS_ALL, 0), ETIMEDOUT);
    HOLDS(!vt_parked_on((const void *)&word));
    EQUALS(vt_unpark(&word, 1, VT_BITS_ALL), 0);
    /* An interruption that came before the wait does not count. */
    atomic_fetch_or(&vt_current()->interrupt, VT_SIGNALLED | VT_NORESTART);
    EQUALS(vt_park(&word, 5, vt_now() + MS, VT_BITS_ALL, VT_PARK_INTERRUPTIBLE), ETIMEDOUT);
    /* A cancellation does, and stays. */
    atomic_fetch_or(&vt_current()->interrupt, VT_CANCELLED);
    EQUALS(vt_park(&word, 5, vt_now() + MS, VT_BITS_ALL, 0), ETIMEDOUT);
    EQUALS(vt_park(&word, 5, VT_NEVER, VT_BITS_ALL, VT_PARK_CANCELLABLE), EINTR);
    EQUALS(vt_park(&word, 5, VT_NEVER, VT_BITS_ALL, VT_PARK_INTERRUPTIBLE), EINTR);
    atomic_store(&vt_current()->interrupt, 0);
    return NULL;
}

START_TEST(park_results)
{
    engine_start(_i + 1, 64, VT_IO_AUTO);
    results(NULL);
    join(spawn(results, NULL));
}
END_TEST

struct sleeper {
    uint32_t bits, id;
    int expected;
    unsigned flags;
};

static struct vt_thread *_Atomic sleeping[16]; /* by id */

static void *park_once(void *arg)
{
    struct sleeper *s = arg;
    atomic_store(&sleeping[s->id], vt_current());
    EQUALS(vt_park(&word, 0, VT_NEVER, s->bits, s->flags), s->expected);
    order[atomic_fetch_add(&steps, 1)] = s->id;
    return NULL;
}

/* Until those with ids less than n wait; they have been queued then. */
static void await_waiters(unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        struct vt_thread *t;
        while (!(t = atomic_load(&sleeping[i])) || *(const void *volatile *)&t->wait_on != (const void *)&word)
            usleep(100);
    }
}

/* Kernel and virtual threads stand in one queue, in their order. */
START_TEST(one_queue)
{
    enum { N = 12 };
    static struct sleeper sleepers[N];
    struct vt_thread *threads[N] = {0};
    pthread_t kernel[N];
    engine_start(_i + 1, 64, VT_IO_AUTO);
    for (unsigned i = 0; i < N; i++) {
        sleepers[i] = (struct sleeper){.bits = VT_BITS_ALL, .id = i};
        if (i % 3 == 2) {
            ck_assert_int_eq(pthread_create(&kernel[i], NULL, park_once, &sleepers[i]), 0);
        } else {
            threads[i] = spawn(park_once, &sleepers[i]);
        }
        await_waiters(i + 1);
    }
    for (unsigned i = 0; i < N; i++) {
        ck_assert_uint_eq(vt_unpark(&word, 1, VT_BITS_ALL), 1);
        while (atomic_load(&steps) <= i)
            usleep(100);
        ck_assert_uint_eq(order[i], i);
    }
    ck_assert_uint_eq(vt_unpark(&word, 1, VT_BITS_ALL), 0);
    for (unsigned i = 0; i < N; i++) {
        if (threads[i])
            join(threads[i]);
        else
            pthread_join(kernel[i], NULL);
    }
}
END_TEST

START_TEST(bits)
{
    enum { N = 6 };
    static struct sleeper sleepers[N];
    struct vt_thread *threads[N];
    engine_start(_i + 1, 64, VT_IO_AUTO);
    for (unsigned i = 0; i < N; i++) {
        sleepers[i] = (struct sleeper){.bits = i % 2 ? 2 : 5, .id = i};
        threads[i] = spawn(park_once, &sleepers[i]);
        await_waiters(i + 1);
    }
    ck_assert_uint_eq(vt_unpark(&word, UINT32_MAX, 8), 0);
    ck_assert_uint_eq(vt_unpark(&word, UINT32_MAX, 2), 3);
    for (unsigned i = 1; i < N; i += 2)
        join(threads[i]);
    ck_assert_uint_eq(vt_unpark(&word, 2, 4 | 2), 2);
    ck_assert_uint_eq(vt_unpark(&word, UINT32_MAX, 1), 1);
    for (unsigned i = 0; i < N; i += 2)
        join(threads[i]);
    ck_assert_uint_eq(steps, N);
}
END_TEST

/* What ends which wait. */
START_TEST(interruptions)
{
    static struct sleeper sleepers[] = {
        {VT_BITS_ALL, 0, EINTR, VT_PARK_INTERRUPTIBLE}, {VT_BITS_ALL, 1, 0, VT_PARK_RESTARTABLE},
        {VT_BITS_ALL, 2, 0, VT_PARK_CANCELLABLE},       {VT_BITS_ALL, 3, EINTR, VT_PARK_INTERRUPTIBLE},
        {VT_BITS_ALL, 4, EINTR, VT_PARK_RESTARTABLE},   {VT_BITS_ALL, 5, 0, VT_PARK_CANCELLABLE},
        {VT_BITS_ALL, 6, EINTR, VT_PARK_CANCELLABLE},   {VT_BITS_ALL, 7, 0, 0},
    };
    static const uint32_t why[] = {VT_SIGNALLED, VT_SIGNALLED | VT_NORESTART, VT_CANCELLED};
    enum { N = sizeof sleepers / sizeof *sleepers };
    struct vt_thread *threads[N];
    engine_start(_i + 1, 64, VT_IO_AUTO);
    unsigned woken = 0;
    for (unsigned i = 0; i < N; i++) {
        threads[i] = spawn(park_once, &sleepers[i]);
        await_waiters(i + 1);
    }
    for (unsigned i = 0; i < N; i++) {
        atomic_fetch_or(&threads[i]->interrupt, why[i < 6 ? i / 3 : 2]);
        vt_unblock(threads[i]);
        if (sleepers[i].expected)
            join(threads[i]);
        else
            woken++;
    }
    usleep(10000);
    ck_assert_uint_eq(vt_unpark(&word, UINT32_MAX, VT_BITS_ALL), woken);
    for (unsigned i = 0; i < N; i++)
        if (!sleepers[i].expected)
            join(threads[i]);
}
END_TEST

/* Waits end by wake-ups, deadlines and interruptions at the same time, while waiters are moved between queues: every wake-up
 * that the waker counts is one wait that says so. */
enum { RACERS = 12, RACES = 1500 };
static _Atomic uint32_t woke, racing;

static void *race(void *arg)
{
    uint32_t random = (uint32_t)(uintptr_t)arg * 7919 + 1;
    for (int i = 0; i < RACES; i++) {
        uint64_t deadline = any(&random, 8) ? vt_now() + any(&random, 60) * US : vt_now() + 2 * MS;
        int err = vt_park(any(&random, 4) ? &word : &other, 0, deadline, VT_BITS_ALL, VT_PARK_INTERRUPTIBLE);
        HOLDS(err == 0 || err == ETIMEDOUT || err == EINTR);
        if (err == 0)
            atomic_fetch_add(&woke, 1);
        else if (err == ETIMEDOUT)
            HOLDS(vt_now() >= deadline);
    }
    atomic_fetch_sub(&racing, 1);
    return NULL;
}

static bool under(void *arg, uint32_t bits, bool more)
{
    (void)more;
    *(bool *)arg = bits != 0;
    return false;
}

static void *wake_racers(void *arg)
{
    struct vt_thread **threads = arg;
    uint32_t random = 77, woken, n = 0;
    while (atomic_load(&racing)) {
        bool one;
        struct vt_thread *t = threads[any(&random, RACERS)];
        switch (any(&random, 6)) {
        case 0:
            n += vt_unpark(&word, 1 + any(&random, 3), VT_BITS_ALL);
            break;
        case 1:
            vt_unpark_requeue((const void *)&word, (const void *)&other, any(&random, 2), any(&random, 4), NULL, NULL, &woken);
            n += woken;
            break;
        case 2:
            vt_unpark_requeue((const void *)&other, (const void *)&word, 0, any(&random, 4), NULL, NULL, NULL);
            break;
        case 3:
            vt_unpark_one((const void *)&other, under, &one);
            n += one;
            break;
        case 4:
            if (t) {
                atomic_fetch_or(&t->interrupt, VT_SIGNALLED | VT_NORESTART);
                vt_unblock(t);
            }
            break;
        default:
            vt_block(vt_now() + any(&random, 30) * US);
        }
    }
    return (void *)(uintptr_t)n;
}

START_TEST(races)
{
    struct vt_thread *threads[RACERS] = {0};
    pthread_t kernel[RACERS];
    engine_start(_i + 1, 64, VT_IO_AUTO);
    racing = RACERS;
    for (uintptr_t i = 0; i < RACERS; i++) {
        if (i % 4 == 3)
            ck_assert_int_eq(pthread_create(&kernel[i], NULL, race, (void *)i), 0);
        else
            threads[i] = spawn(race, (void *)i);
    }
    struct vt_thread *waker = spawn(wake_racers, threads);
    uint32_t n = (uint32_t)(uintptr_t)wake_racers(threads);
    n += (uint32_t)(uintptr_t)join(waker);
    for (int i = 0; i < RACERS; i++) {
        if (threads[i])
            join(threads[i]);
        else
            pthread_join(kernel[i], NULL);
    }
    ck_assert_uint_eq(n, woke);
    ck_assert_uint_eq(vt_unpark(&word, UINT32_MAX, VT_BITS_ALL), 0);
    ck_assert_uint_eq(vt_unpark(&other, UINT32_MAX, VT_BITS_ALL), 0);
    ck_assert(!vt_parked_on((const void *)&word) && !vt_parked_on((const void *)&other));
}
END_TEST

static bool no(void *arg)
{
    (void)arg;
    return false;
}

/* Moved waiters stand behind those that were there, in order. */
START_TEST(requeued)
{
    enum { N = 5 };
    static struct sleeper sleepers[N];
    struct vt_thread *threads[N];
    unsigned woken = 9;
    engine_start(_i + 1, 64, VT_IO_AUTO);
    for (unsigned i = 0; i < N; i++) {
        sleepers[i] = (struct sleeper){.bits = VT_BITS_ALL, .id = i};
        threads[i] = spawn(park_once, &sleepers[i]);
        await_waiters(i + 1);
    }
    ck_assert_int_eq(vt_unpark_requeue((const void *)&word, (const void *)&other, 1, 9, no, NULL, &woken), -1);
    ck_assert_uint_eq(woken, 0);
    ck_assert_int_eq(vt_unpark_requeue((const void *)&word, (const void *)&other, 1, 3, NULL, NULL, &woken), 4);
    ck_assert_uint_eq(woken, 1);
    join(threads[0]);
    ck_assert_uint_eq(vt_unpark(&word, UINT32_MAX, VT_BITS_ALL), 1);
    join(threads[N - 1]);
    for (unsigned i = 1; i < N - 1; i++) {
        ck_assert_uint_eq(vt_unpark(&other, 1, VT_BITS_ALL), 1);
        join(threads[i]);
    }
    for (unsigned i = 0; i < N; i++)
        ck_assert_uint_eq(order[i], i == 0 ? 0 : i == 1 ? N - 1 : i - 1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("park");
    TCase *c = tcase_create("park");
    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, permits, 0, 2);
    tcase_add_loop_test(c, rings, 0, 3);
    tcase_add_loop_test(c, crowds, 0, 4);
    tcase_add_loop_test(c, park_results, 0, 2);
    tcase_add_loop_test(c, one_queue, 0, 2);
    tcase_add_loop_test(c, bits, 0, 2);
    tcase_add_loop_test(c, interruptions, 0, 2);
    tcase_add_loop_test(c, races, 0, 4);
    tcase_add_loop_test(c, requeued, 0, 2);
    suite_add_tcase(s, c);
    return engine_main(s);
}
