/* The waiting objects on kernel threads (park_stub.c): results compared with libc's own functions, and
 * stress. */
#include "sync/barrier.h"
#include "sync/cond.h"
#include "sync/mutex.h"
#include "sync/once.h"
#include "sync/rwlock.h"
#include "sync/sem.h"

#include "clock.h"
#include "sys.h"

#include <check.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 8 };

#ifdef __SANITIZE_THREAD__
enum { ROUNDS = 2000 };
#else
enum { ROUNDS = 20000 };
#endif

static bool reached(clockid_t clock, const struct timespec *until)
{
    return vt_clock_now(clock) >= vt_timespec_ns(until);
}

static struct timespec after_ms(clockid_t clock, long ms)
{
    struct timespec t;
    clock_gettime(clock, &t);
    t.tv_nsec += ms * 1000000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    if (t.tv_nsec < 0) {
        t.tv_nsec += 1000000000;
        t.tv_sec--;
    }
    return t;
}

static void run(int n, void *(*f)(void *), void *arg)
{
    pthread_t threads[64];
    for (int i = 0; i < n; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, f, arg), 0);
    for (int i = 0; i < n; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
}

/* --- mutexes: tables of both implementations ----------------------------------------------------------- */

struct mutex_ops {
    int (*lock)(pthread_mutex_t *);
    int (*trylock)(pthread_mutex_t *);
    int (*clocklock)(pthread_mutex_t *, clockid_t, const struct timespec *);
    int (*unlock)(pthread_mutex_t *);
};

static int fast_lock(pthread_mutex_t *m)
{
    return vt_mutex_lock_fast(m) ? 0 : vt_mutex_lock(m);
}

static int fast_unlock(pthread_mutex_t *m)
{
    return vt_mutex_unlock_fast(m) ? 0 : vt_mutex_unlock(m);
}

#ifndef __SANITIZE_THREAD__
static int libc_clocklock(pthread_mutex_t *m, clockid_t clock, const struct timespec *t)
{
    return clock == CLOCK_REALTIME ? pthread_mutex_timedlock(m, t) : pthread_mutex_clocklock(m, clock, t);
}

static const struct mutex_ops ours = {fast_lock, vt_mutex_trylock, vt_mutex_clocklock, fast_unlock};
static const struct mutex_ops libcs = {pthread_mutex_lock, pthread_mutex_trylock, libc_clocklock, pthread_mutex_unlock};

struct other {
    const struct mutex_ops *ops;
    pthread_mutex_t *mutex;
    int *log;
};

/* Threads of the story take themselves for virtual ones, so that proxies lock for them. */
static bool virtual;

static void *other_thread(void *arg)
{
    struct other *o = arg;
    vt_current()->kind = virtual ? VT_VIRTUAL : VT_KERNEL;
    struct timespec times[] = {
        after_ms(CLOCK_REALTIME, 2), after_ms(CLOCK_REALTIME, -1000), {-1, 5}, {-1, -5}, {0, 1000000000}, {0, -1}};
    int *log = o->log;
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
        *log++ = o->ops->clocklock(o->mutex, CLOCK_REALTIME, &times[i]);
    struct timespec mono = after_ms(CLOCK_MONOTONIC, 2);
    *log++ = o->ops->clocklock(o->mutex, CLOCK_MONOTONIC, &mono);
    *log++ = o->ops->trylock(o->mutex);
    return NULL;
}

/* What happens to a mutex of this kind, as numbers. */
static int mutex_story(const struct mutex_ops *ops, int type, int robust, int protocol, int shared, int *log)
{
    int *start = log;
    pthread_mutexattr_t attr;
    pthread_mutex_t m;
    struct timespec past = {0, 0}, bad = {0, 2000000000};
    pthread_t t;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, type);
    pthread_mutexattr_setrobust(&attr, robust);
    pthread_mutexattr_setprotocol(&attr, protocol);
    pthread_mutexattr_setpshared(&attr, shared);
    ck_assert_int_eq(pthread_mutex_init(&m, &attr), 0);
    *log++ = m.__data.__lock;
    *log++ = ops->lock(&m);
    *log++ = virtual || m.__data.__owner == (int)gettid();
    *log++ = (int)m.__data.__nusers;
    *log++ = (int)m.__data.__count;
    *log++ = ops->trylock(&m);
    if (type != PTHREAD_MUTEX_NORMAL && type != PTHREAD_MUTEX_ADAPTIVE_NP)
        *log++ = ops->lock(&m);
    *log++ = ops->clocklock(&m, CLOCK_REALTIME, &past);
    *log++ = (int)m.__data.__count;
    struct other o = {ops, &m, log};
    pthread_create(&t, NULL, other_thread, &o);
    pthread_join(t, NULL);
    log += 8;
    for (int i = 0; i < (type == PTHREAD_MUTEX_RECURSIVE ? 4 : 1); i++)
        *log++ = ops->unlock(&m);
    if (type == PTHREAD_MUTEX_RECURSIVE || type == PTHREAD_MUTEX_ERRORCHECK || robust == PTHREAD_MUTEX_ROBUST)
        *log++ = ops->unlock(&m);
    *log++ = ops->clocklock(&m, CLOCK_REALTIME, &bad);
    if (type == PTHREAD_MUTEX_RECURSIVE) {
        unsigned count = m.__data.__count;
        m.__data.__count = UINT_MAX;
        *log++ = ops->lock(&m);
        *log++ = ops->trylock(&m);
        m.__data.__count = count;
    }
    *log++ = pthread_mutex_destroy(&m);
    *log++ = ops->unlock(&m);
    *log++ = (int)m.__data.__nusers;
    *log++ = pthread_mutex_destroy(&m);
    *log++ = m.__data.__kind;
    if (robust == PTHREAD_MUTEX_STALLED) {
        *log++ = ops->lock(&m); /* destroyed */
        *log++ = ops->trylock(&m);
        *log++ = ops->unlock(&m);
    }
    return (int)(log - start);
}

START_TEST(mutex_as_libc)
{
    static const int types[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK,
                                PTHREAD_MUTEX_ADAPTIVE_NP};
    for (int robust = 0; robust < 2; robust++)
        for (int protocol = PTHREAD_PRIO_NONE; protocol <= PTHREAD_PRIO_INHERIT; protocol++)
            for (int shared = 0; shared < 2; shared++)
                for (int type = 0; type < 4; type++) {
                    int a[64] = {0}, b[64] = {0};
                    /* In a thread of its own, so that the process is not single-threaded. */
                    int na = mutex_story(&libcs, types[type], robust, protocol, shared, a);
                    virtual = _i;
                    vt_current()->kind = virtual ? VT_VIRTUAL : VT_KERNEL;
                    int nb = mutex_story(&ours, types[type], robust, protocol, shared, b);
                    virtual = false;
                    vt_current()->kind = VT_KERNEL;
                    ck_assert_int_eq(na, nb);
                    for (int i = 0; i < na; i++)
                        ck_assert_msg(a[i] == b[i], "robust %d protocol %d shared %d type %d step %d: %d, libc %d", robust,
                                      protocol, shared, types[type], i, b[i], a[i]);
                }
}
END_TEST
#endif

static pthread_mutex_t mutex;
static long counter;

static void *exclude(void *arg)
{
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        fast_lock(&mutex);
        counter++;
        fast_unlock(&mutex);
    }
    return NULL;
}

static void *exclude_timed(void *arg)
{
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        struct timespec t = after_ms(i & 1 ? CLOCK_REALTIME : CLOCK_MONOTONIC, 0);
        t.tv_nsec = t.tv_nsec + 20000 < 1000000000 ? t.tv_nsec + 20000 : t.tv_nsec;
        int err = vt_mutex_clocklock(&mutex, i & 1 ? CLOCK_REALTIME : CLOCK_MONOTONIC, &t);
        if (err) {
            ck_assert_int_eq(err, ETIMEDOUT);
            ck_assert(reached(i & 1 ? CLOCK_REALTIME : CLOCK_MONOTONIC, &t));
            continue;
        }
        counter++;
        __atomic_add_fetch((long *)arg, 1, __ATOMIC_RELAXED);
        fast_unlock(&mutex);
    }
    return NULL;
}

START_TEST(mutex_excludes)
{
    memset(&mutex, 0, sizeof mutex);
    mutex.__data.__kind = _i;
    counter = 0;
    run(THREADS, exclude, NULL);
    ck_assert_int_eq(counter, THREADS * ROUNDS);
    long got = 0;
    counter = 0;
    run(THREADS, exclude_timed, &got);
    ck_assert_int_eq(counter, got);
    ck_assert_int_eq(mutex.__data.__lock & 1, 0);
    ck_assert_uint_eq(mutex.__data.__nusers, 0);
}
END_TEST

/* The last user frees it: unlock must not touch it after it has let go. */
struct shared_object {
    pthread_mutex_t mutex;
    int users;
};

static void *use_and_free(void *arg)
{
    struct shared_object *o = arg;
    fast_lock(&o->mutex);
    bool last = --o->users == 0;
    fast_unlock(&o->mutex);
    if (last) {
        memset(o, 0x5a, sizeof *o);
        free(o);
    }
    return NULL;
}

START_TEST(mutex_freed_by_last_user)
{
    for (int i = 0; i < ROUNDS / 20; i++) {
        struct shared_object *o = calloc(1, sizeof *o);
        o->users = 4;
        run(4, use_and_free, o);
    }
}
END_TEST

/* --- conditions ---------------------------------------------------------------------------------------- */

static pthread_cond_t cond, cond2;
static int items, taken, done;

static void *consume(void *arg)
{
    (void)arg;
    for (;;) {
        fast_lock(&mutex);
        while (!items && !done)
            ck_assert_int_eq(vt_cond_wait(&cond, &mutex, CLOCK_REALTIME, NULL), 0);
        if (!items) {
            fast_unlock(&mutex);
            return NULL;
        }
        items--;
        taken++;
        vt_cond_signal(&cond2);
        fast_unlock(&mutex);
    }
}

static void *consume_timed(void *arg)
{
    (void)arg;
    for (;;) {
        fast_lock(&mutex);
        while (!items && !done) {
            struct timespec t = after_ms(CLOCK_MONOTONIC, 1);
            int err = vt_cond_wait(&cond, &mutex, CLOCK_MONOTONIC, &t);
            if (err) {
                ck_assert_int_eq(err, ETIMEDOUT);
                ck_assert(reached(CLOCK_MONOTONIC, &t));
            }
        }
        if (!items) {
            fast_unlock(&mutex);
            return NULL;
        }
        items--;
        taken++;
        vt_cond_signal(&cond2);
        fast_unlock(&mutex);
    }
}

static void *produce(void *arg)
{
    for (int i = 0; i < ROUNDS / 4; i++) {
        fast_lock(&mutex);
        while (items >= 3)
            vt_cond_wait(&cond2, &mutex, CLOCK_REALTIME, NULL);
        items++;
        if (arg)
            vt_cond_broadcast(&cond);
        else
            vt_cond_signal(&cond);
        fast_unlock(&mutex);
    }
    return NULL;
}

static void pass_items(pthread_mutex_t init, bool broadcast, bool timed)
{
    pthread_t consumers[THREADS];
    mutex = init;
    memset(&cond, 0, sizeof cond);
    memset(&cond2, 0, sizeof cond2);
    items = taken = done = 0;
    for (int i = 0; i < THREADS; i++)
        pthread_create(&consumers[i], NULL, timed && i % 2 ? consume_timed : consume, NULL);
    run(3, produce, broadcast ? &done : NULL);
    fast_lock(&mutex);
    done = 1;
    vt_cond_broadcast(&cond);
    fast_unlock(&mutex);
    for (int i = 0; i < THREADS; i++)
        pthread_join(consumers[i], NULL);
    ck_assert_int_eq(taken, 3 * (ROUNDS / 4));
    ck_assert_uint_eq(mutex.__data.__nusers, 0);
    ck_assert_int_eq(pthread_cond_destroy(&cond), 0);
}

START_TEST(cond_passes_items)
{
    pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
    m.__data.__kind = _i / 4;
    pass_items(m, _i & 1, _i & 2);
}
END_TEST

START_TEST(cond_with_foreign_mutex)
{
    pthread_mutexattr_t attr;
    pthread_mutex_t m;
    pthread_mutexattr_init(&attr);
    if (_i & 4)
        pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    if (_i & 8)
        pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&m, &attr);
    pass_items(m, _i & 1, _i & 2);
}
END_TEST

/* A process-shared condition with a private mutex, which others use meanwhile. */
#ifndef __SANITIZE_THREAD__
START_TEST(shared_cond)
{
    pthread_condattr_t attr;
    pthread_t consumers[4], others[4];
    memset(&mutex, 0, sizeof mutex);
    mutex.__data.__kind = _i;
    memset(&cond2, 0, sizeof cond2);
    pthread_condattr_init(&attr);
    pthread_condattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_cond_init(&cond, &attr);
    items = taken = done = 0;
    counter = 0;
    for (int i = 0; i < 4; i++)
        pthread_create(&others[i], NULL, exclude, NULL);
    for (int i = 0; i < 4; i++)
        pthread_create(&consumers[i], NULL, i % 2 ? consume_timed : consume, NULL);
    run(2, produce, NULL);
    fast_lock(&mutex);
    done = 1;
    vt_cond_broadcast(&cond);
    fast_unlock(&mutex);
    for (int i = 0; i < 4; i++) {
        pthread_join(consumers[i], NULL);
        pthread_join(others[i], NULL);
    }
    ck_assert_int_eq(taken, 2 * (ROUNDS / 4));
    ck_assert_int_eq(counter, 4 * ROUNDS);
}
END_TEST
#endif

struct rendezvous {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    int go, left;
};

static void *wait_to_go(void *arg)
{
    struct rendezvous *r = arg;
    fast_lock(&r->mutex);
    r->left++;
    while (!r->go)
        vt_cond_wait(&r->cond, &r->mutex, CLOCK_REALTIME, NULL);
    r->left--;
    fast_unlock(&r->mutex);
    return NULL;
}

/* Destroyed and overwritten as soon as all have been woken, before they have the mutex again. */
START_TEST(cond_destroyed_after_wake)
{
    for (int i = 0; i < ROUNDS / 40; i++) {
        struct rendezvous *r = calloc(1, sizeof *r);
        pthread_t threads[4];
        for (int j = 0; j < 4; j++)
            pthread_create(&threads[j], NULL, wait_to_go, r);
        for (int n = 0; n < 4; sched_yield()) {
            fast_lock(&r->mutex);
            n = r->left;
            fast_unlock(&r->mutex);
        }
        fast_lock(&r->mutex);
        r->go = 1;
        if (i & 1)
            vt_cond_broadcast(&r->cond);
        else
            for (int j = 0; j < 4; j++)
                vt_cond_signal(&r->cond);
        pthread_cond_destroy(&r->cond);
        memset(&r->cond, 0x5a, sizeof r->cond);
        fast_unlock(&r->mutex);
        for (int j = 0; j < 4; j++)
            pthread_join(threads[j], NULL);
        free(r);
    }
}
END_TEST

static int wait_result;

static void *wait_timed(void *arg)
{
    struct timespec t = after_ms(CLOCK_REALTIME, 60);
    fast_lock(&mutex);
    *(int *)arg = 1;
    wait_result = vt_cond_wait(&cond, &mutex, CLOCK_REALTIME, &t);
    fast_unlock(&mutex);
    return NULL;
}

/* Woken by a broadcast in time, though it gets the mutex late. */
START_TEST(cond_broadcast_beats_timeout)
{
    pthread_t threads[3];
    int there[3] = {0};
    memset(&mutex, 0, sizeof mutex);
    memset(&cond, 0, sizeof cond);
    for (int i = 0; i < 3; i++) {
        pthread_create(&threads[i], NULL, wait_timed, &there[i]);
        for (int ready = 0; !ready; sched_yield()) {
            fast_lock(&mutex);
            ready = there[i];
            fast_unlock(&mutex);
        }
    }
    fast_lock(&mutex);
    vt_cond_broadcast(&cond);
    wait_result = 77;
    usleep(100000);
    ck_assert_int_eq(wait_result, 77);
    fast_unlock(&mutex);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    ck_assert_int_eq(wait_result, 0);
}
END_TEST

START_TEST(cond_errors)
{
    struct timespec past = {0, 0};
    pthread_mutex_t e = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP, r = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    memset(&cond, 0, sizeof cond);
    ck_assert_int_eq(vt_cond_wait(&cond, &e, CLOCK_REALTIME, NULL), EPERM);
    ck_assert_int_eq(vt_cond_wait(&cond, &r, CLOCK_REALTIME, NULL), EPERM);
    vt_mutex_lock(&e);
    ck_assert_int_eq(vt_cond_wait(&cond, &e, CLOCK_REALTIME, &past), ETIMEDOUT);
    ck_assert_int_eq(vt_cond_wait(&cond, &e, CLOCK_MONOTONIC, &past), ETIMEDOUT);
    struct timespec soon = after_ms(CLOCK_REALTIME, 5);
    int err;
    while ((err = vt_cond_wait(&cond, &e, CLOCK_REALTIME, &soon)) == 0)
        ;
    ck_assert_int_eq(err, ETIMEDOUT);
    ck_assert(reached(CLOCK_REALTIME, &soon));
    ck_assert_int_eq(vt_mutex_unlock(&e), 0);
    ck_assert_int_eq(vt_mutex_lock(&r), 0);
    ck_assert_int_eq(vt_mutex_lock(&r), 0);
    ck_assert_int_eq(vt_cond_wait(&cond, &r, CLOCK_REALTIME, &past), ETIMEDOUT);
    ck_assert_uint_eq(r.__data.__count, 2);
    ck_assert_int_eq(vt_mutex_unlock(&r), 0);
    ck_assert_int_eq(vt_mutex_unlock(&r), 0);
    ck_assert_int_eq(vt_mutex_unlock(&r), EPERM);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&cond, &attr);
    ck_assert_int_eq(vt_cond_clock(&cond), CLOCK_MONOTONIC);
    pthread_cond_init(&cond, NULL);
    ck_assert_int_eq(vt_cond_clock(&cond), CLOCK_REALTIME);
}
END_TEST

/* --- read-write locks ---------------------------------------------------------------------------------- */

static pthread_rwlock_t rwlock;
static long low, high;
static int readers_in;

static int fast_rdlock(pthread_rwlock_t *l)
{
    return vt_rwlock_rdlock_fast(l) ? 0 : vt_rwlock_rdlock(l, CLOCK_REALTIME, NULL);
}

static int fast_wrlock(pthread_rwlock_t *l)
{
    return vt_rwlock_wrlock_fast(l) ? 0 : vt_rwlock_wrlock(l, CLOCK_REALTIME, NULL);
}

static int fast_rwunlock(pthread_rwlock_t *l)
{
    return vt_rwlock_unlock_fast(l) ? 0 : vt_rwlock_unlock(l);
}

static void *read_or_write(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)&arg;
    for (int i = 0; i < ROUNDS / 2; i++) {
        struct timespec t;
        int what = rand_r(&seed) % 8, err;
        switch (what) {
        case 0:
            err = fast_wrlock(&rwlock);
            break;
        case 1:
            t = after_ms(CLOCK_REALTIME, 0);
            err = vt_rwlock_wrlock(&rwlock, CLOCK_REALTIME, &t);
            break;
        case 2:
            err = vt_rwlock_trywrlock(&rwlock);
            break;
        case 3:
            t = after_ms(CLOCK_MONOTONIC, 0);
            err = vt_rwlock_rdlock(&rwlock, CLOCK_MONOTONIC, &t);
            break;
        case 4:
            err = vt_rwlock_tryrdlock(&rwlock);
            break;
        default:
            err = fast_rdlock(&rwlock);
        }
        if (err) {
            ck_assert(err == (what == 2 || what == 4 ? EBUSY : ETIMEDOUT));
            continue;
        }
        if (what < 3) {
            low++;
            if (i % 16 == 0)
                sched_yield();
            high++;
        } else {
            ck_assert_int_eq(low, high);
            __atomic_add_fetch(&readers_in, 1, __ATOMIC_RELAXED);
            if (i % 16 == 0)
                sched_yield();
            __atomic_sub_fetch(&readers_in, 1, __ATOMIC_RELAXED);
        }
        ck_assert_int_eq(fast_rwunlock(&rwlock), 0);
    }
    return NULL;
}

static void rwlock_init(int kind)
{
    pthread_rwlockattr_t attr;
    pthread_rwlockattr_init(&attr);
    pthread_rwlockattr_setkind_np(&attr, kind);
    pthread_rwlock_init(&rwlock, &attr);
}

START_TEST(rwlock_excludes)
{
    rwlock_init(_i);
    low = high = 0;
    run(THREADS, read_or_write, NULL);
    ck_assert_int_eq(low, high);
    ck_assert_uint_eq(rwlock.__data.__readers & 0x9fffffff, 0);
    ck_assert_int_eq(rwlock.__data.__cur_writer, 0);
}
END_TEST

static void *write_once(void *arg)
{
    ck_assert_int_eq(vt_rwlock_wrlock(&rwlock, CLOCK_REALTIME, NULL), 0);
    __atomic_store_n((int *)arg, 1, __ATOMIC_SEQ_CST);
    vt_rwlock_unlock(&rwlock);
    return NULL;
}

static void *read_once(void *arg)
{
    ck_assert_int_eq(vt_rwlock_rdlock(&rwlock, CLOCK_REALTIME, NULL), 0);
    __atomic_store_n((int *)arg, 1, __ATOMIC_SEQ_CST);
    vt_rwlock_unlock(&rwlock);
    return NULL;
}

static void *write_in_vain(void *arg)
{
    struct timespec t = after_ms(CLOCK_REALTIME, 30);
    ck_assert_int_eq(vt_rwlock_wrlock(&rwlock, CLOCK_REALTIME, &t), ETIMEDOUT);
    return arg;
}

START_TEST(rwlock_kinds)
{
    pthread_t writer, reader;
    int wrote = 0, read = 0;
    rwlock_init(_i);
    vt_rwlock_rdlock(&rwlock, CLOCK_REALTIME, NULL);
    pthread_create(&writer, NULL, write_once, &wrote);
    usleep(20000);
    int err = vt_rwlock_tryrdlock(&rwlock); /* recursive, with a writer waiting */
    for (int i = 0; !err && _i == PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP && i < 1000; i++) { /* as soon as it waits */
        vt_rwlock_unlock(&rwlock);
        usleep(10000);
        err = vt_rwlock_tryrdlock(&rwlock);
    }
    ck_assert_int_eq(err, _i == PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP ? EBUSY : 0);
    if (!err)
        vt_rwlock_unlock(&rwlock);
    pthread_create(&reader, NULL, read_once, &read);
    usleep(20000);
    if (_i != PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP)
        for (int i = 0; !__atomic_load_n(&read, __ATOMIC_SEQ_CST) && i < 1000; i++)
            usleep(10000);
    ck_assert_int_eq(__atomic_load_n(&read, __ATOMIC_SEQ_CST), _i != PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    ck_assert_int_eq(__atomic_load_n(&wrote, __ATOMIC_SEQ_CST), 0);
    vt_rwlock_unlock(&rwlock);
    pthread_join(writer, NULL);
    pthread_join(reader, NULL);

    /* A writer that gives up lets the readers in that waited behind it. */
    read = 0;
    vt_rwlock_rdlock(&rwlock, CLOCK_REALTIME, NULL);
    pthread_create(&writer, NULL, write_in_vain, NULL);
    usleep(10000);
    pthread_create(&reader, NULL, read_once, &read);
    pthread_join(writer, NULL);
    pthread_join(reader, NULL);
    vt_rwlock_unlock(&rwlock);
    ck_assert_uint_eq(rwlock.__data.__readers & 0x9fffffff, 0);
}
END_TEST

#define rwlock_story(p, rd, wr, tryrd, trywr, unlock, log)                                                                     \
    do {                                                                                                                       \
        struct timespec past_ = {0, 0}, bad_ = {0, -1};                                                                        \
        *log++ = rd(&rwlock, CLOCK_REALTIME, &past_);                                                                          \
        *log++ = rd(&rwlock, CLOCK_REALTIME, &bad_);                                                                           \
        *log++ = rd(&rwlock, CLOCK_PROCESS_CPUTIME_ID, &past_);                                                                \
        *log++ = wr(&rwlock, CLOCK_MONOTONIC, &past_);                                                                         \
        *log++ = trywr(&rwlock);                                                                                               \
        *log++ = tryrd(&rwlock);                                                                                               \
        *log++ = unlock(&rwlock);                                                                                              \
        *log++ = wr(&rwlock, CLOCK_MONOTONIC, &past_);                                                                         \
        *log++ = rd(&rwlock, CLOCK_MONOTONIC, &past_);                                                                         \
        *log++ = wr(&rwlock, CLOCK_MONOTONIC, &past_);                                                                         \
        *log++ = wr(&rwlock, CLOCK_MONOTONIC, &bad_);                                                                          \
        *log++ = trywr(&rwlock);                                                                                               \
        *log++ = tryrd(&rwlock);                                                                                               \
        *log++ = rwlock.__data.__cur_writer == (int)gettid();                                                                  \
        *log++ = unlock(&rwlock);                                                                                              \
        *log++ = rwlock.__data.__cur_writer;                                                                                   \
        *log++ = trywr(&rwlock);                                                                                               \
        *log++ = unlock(&rwlock);                                                                                              \
        *log++ = pthread_rwlock_destroy(&rwlock);                                                                              \
    } while (0)

START_TEST(rwlock_as_libc)
{
    int a[32] = {0}, b[32] = {0}, *pa = a, *pb = b;
    rwlock_init(_i);
    rwlock_story(p, pthread_rwlock_clockrdlock, pthread_rwlock_clockwrlock, pthread_rwlock_tryrdlock, pthread_rwlock_trywrlock,
                 pthread_rwlock_unlock, pa);
    rwlock_init(_i);
    rwlock_story(p, vt_rwlock_rdlock, vt_rwlock_wrlock, vt_rwlock_tryrdlock, vt_rwlock_trywrlock, vt_rwlock_unlock, pb);
    for (int i = 0; i < 32; i++)
        ck_assert_msg(a[i] == b[i], "step %d: %d, libc %d", i, b[i], a[i]);
    rwlock_init(_i);
    rwlock.__data.__readers = (1u << 28) - 1;
    ck_assert_int_eq(vt_rwlock_tryrdlock(&rwlock), EAGAIN);
    ck_assert_int_eq(vt_rwlock_rdlock(&rwlock, CLOCK_REALTIME, NULL), EAGAIN);
}
END_TEST

struct shared_rwlock {
    pthread_rwlock_t lock;
    int users;
};

static void *use_and_free_rwlock(void *arg)
{
    struct shared_rwlock *o = arg;
    if ((uintptr_t)&o & 64) {
        fast_rdlock(&o->lock);
        sched_yield();
        fast_rwunlock(&o->lock);
    }
    fast_wrlock(&o->lock);
    bool last = --o->users == 0;
    fast_rwunlock(&o->lock);
    if (last) {
        memset(o, 0x5a, sizeof *o);
        free(o);
    }
    return NULL;
}

START_TEST(rwlock_freed_by_last_user)
{
    for (int i = 0; i < ROUNDS / 40; i++) {
        struct shared_rwlock *o = calloc(1, sizeof *o);
        pthread_rwlock_init(&o->lock, NULL);
        o->lock.__data.__flags = (unsigned)(i % 3);
        o->users = 5;
        run(5, use_and_free_rwlock, o);
    }
}
END_TEST

/* --- semaphores ---------------------------------------------------------------------------------------- */

static sem_t sem, sem2;

static void *sem_ping(void *arg)
{
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        struct timespec t = after_ms(CLOCK_REALTIME, 1);
        int err;
        while ((err = vt_sem_wait(&sem, CLOCK_REALTIME, i & 1 ? &t : NULL)) == ETIMEDOUT) {
            ck_assert(reached(CLOCK_REALTIME, &t));
            t = after_ms(CLOCK_REALTIME, 1);
        }
        ck_assert_int_eq(err, 0);
        __atomic_add_fetch(&counter, 1, __ATOMIC_RELAXED);
        ck_assert_int_eq(vt_sem_post(&sem2), 0);
    }
    return NULL;
}

static void *sem_pong(void *arg)
{
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        vt_sem_post(&sem);
        ck_assert_int_eq(vt_sem_wait(&sem2, CLOCK_REALTIME, NULL), 0);
    }
    return NULL;
}

static void *sem_both(void *arg)
{
    static _Atomic int n;
    return atomic_fetch_add(&n, 1) & 1 ? sem_ping(arg) : sem_pong(arg);
}

START_TEST(sem_counts)
{
    int value;
    sem_init(&sem, 0, 0);
    sem_init(&sem2, 0, 0);
    counter = 0;
    run(THREADS, sem_both, NULL);
    ck_assert_int_eq(counter, ROUNDS * THREADS / 2);
    sem_getvalue(&sem, &value);
    ck_assert_int_eq(value, 0);
    ck_assert_uint_eq(((uint64_t *)&sem)[0], 0);
    ck_assert_int_eq(vt_sem_take(&sem, 0), false);
    struct timespec past = {0, 0}, negative = {-1, 0};
    ck_assert_int_eq(vt_sem_wait(&sem, CLOCK_REALTIME, &past), ETIMEDOUT);
    ck_assert_int_eq(vt_sem_wait(&sem, CLOCK_MONOTONIC, &negative), ETIMEDOUT);
    vt_sem_post(&sem);
    ck_assert_int_eq(vt_sem_wait(&sem, CLOCK_REALTIME, &past), 0);
    sem_init(&sem, 0, SEM_VALUE_MAX);
    ck_assert_int_eq(vt_sem_post(&sem), EOVERFLOW);
    sem_init(&sem, 1, 1);
    ck_assert_int_eq(vt_sem_wait(&sem, CLOCK_REALTIME, NULL), 0);
    ck_assert_int_eq(vt_sem_wait(&sem, CLOCK_REALTIME, &past), ETIMEDOUT);
    ck_assert_int_eq(vt_sem_post(&sem), 0);
    ck_assert_int_eq(vt_sem_take(&sem, 0), true);
}
END_TEST

static void *post_it(void *arg)
{
    vt_sem_post(arg);
    return NULL;
}

START_TEST(sem_freed_after_wait)
{
    for (int i = 0; i < ROUNDS / 20; i++) {
        pthread_t t;
        sem_t *s = malloc(sizeof *s);
        sem_init(s, 0, 0);
        pthread_create(&t, NULL, post_it, s);
        vt_sem_wait(s, CLOCK_REALTIME, NULL);
        sem_destroy(s);
        memset(s, 0x5a, sizeof *s);
        free(s);
        pthread_join(t, NULL);
    }
}
END_TEST

static void *interrupt(void *arg)
{
    struct vt_thread *t = arg;
    usleep(20000);
    atomic_store(&t->interrupt, VT_SIGNALLED);
    vt_unblock(t);
    return NULL;
}

START_TEST(sem_interrupted)
{
    pthread_t t;
    sem_init(&sem, 0, 0);
    pthread_create(&t, NULL, interrupt, vt_current());
    ck_assert_int_eq(vt_sem_wait(&sem, CLOCK_REALTIME, NULL), EINTR);
    ck_assert_uint_eq(((uint64_t *)&sem)[0], 0);
    atomic_store(&vt_current()->interrupt, 0);
    pthread_join(t, NULL);
}
END_TEST

/* --- barriers ------------------------------------------------------------------------------------------ */

static pthread_barrier_t barrier;
static long rounds[THREADS], serial;

static void *meet(void *arg)
{
    static _Atomic int next;
    int me = atomic_fetch_add(&next, 1) % THREADS;
    (void)arg;
    for (int i = 1; i <= ROUNDS / 4; i++) {
        rounds[me] = i;
        int r = vt_barrier_wait(&barrier);
        if (r)
            serial++;
        for (int j = 0; j < THREADS; j++)
            ck_assert_int_eq(rounds[j], i);
        r = vt_barrier_wait(&barrier);
        ck_assert(r == 0 || r == PTHREAD_BARRIER_SERIAL_THREAD);
    }
    return NULL;
}

/* Wakes without reason, as late wakers of what was in the same memory do. */
static _Atomic bool stop_nagging;

static void *nag(void *arg)
{
    while (!stop_nagging) {
        vt_unpark(arg, 1, VT_BITS_ALL);
        usleep(50);
    }
    return NULL;
}

START_TEST(barrier_meets)
{
    pthread_t nagger;
    pthread_barrier_init(&barrier, NULL, THREADS);
    memset(rounds, 0, sizeof rounds);
    serial = 0;
    stop_nagging = false;
    pthread_create(&nagger, NULL, nag, &barrier);
    run(THREADS, meet, NULL);
    stop_nagging = true;
    pthread_join(nagger, NULL);
    ck_assert_int_eq(serial, ROUNDS / 4);
    ck_assert_int_eq(vt_barrier_destroy(&barrier), 0);
    pthread_barrier_init(&barrier, NULL, 1);
    ck_assert_int_eq(vt_barrier_wait(&barrier), PTHREAD_BARRIER_SERIAL_THREAD);
    ck_assert_int_eq(vt_barrier_destroy(&barrier), 0);
}
END_TEST

static void *meet_and_destroy(void *arg)
{
    if (vt_barrier_wait(arg)) {
        vt_barrier_destroy(arg);
        memset(arg, 0x5a, sizeof(pthread_barrier_t));
        free(arg);
    }
    return NULL;
}

START_TEST(barrier_destroyed_at_once)
{
    for (int i = 0; i < ROUNDS / 40; i++) {
        pthread_barrier_t *b = malloc(sizeof *b);
        pthread_barrier_init(b, NULL, 4);
        run(4, meet_and_destroy, b);
    }
}
END_TEST

/* --- once ---------------------------------------------------------------------------------------------- */

static pthread_once_t once;
static int once_count;

static void init_slowly(void)
{
    usleep(2000);
    once_count++;
}

static void init_or_leave(void)
{
    if (++once_count < 4)
        pthread_exit(NULL);
}

static void init_or_be_cancelled(void)
{
    if (++once_count < 4) {
        pthread_cancel(pthread_self());
        pthread_testcancel();
    }
}

static void *once_with(void *arg)
{
    vt_once(&once, (void (*)(void))(uintptr_t)arg);
    ck_assert(vt_once_done(&once));
    return NULL;
}

START_TEST(once_runs_once)
{
    void (*inits[])(void) = {init_slowly, init_or_leave, init_or_be_cancelled};
    int expected[] = {1, 4, 4};
    for (int i = 0; i < 50; i++)
        for (int j = 0; j < 3; j++) {
            once = PTHREAD_ONCE_INIT;
            once_count = 0;
            run(THREADS, once_with, (void *)(uintptr_t)inits[j]);
            ck_assert_int_eq(once_count, expected[j]);
            ck_assert_int_eq(once, VT_ONCE_DONE);
        }
    /* Left in progress by a thread that the child of a fork does not have. */
    once = VT_ONCE_IN_PROGRESS;
    once_count = 0;
    vt_once_forked();
    vt_once(&once, init_slowly);
    ck_assert_int_eq(once_count, 1);
}
END_TEST

/* --- futex() by syscall(), which is ours in this program ----------------------------------------------- */

static uint32_t words[2];

static long kernel_futex(uint32_t *addr, int op, uint32_t val, uintptr_t val2, uint32_t *addr2, uint32_t val3)
{
    return vt_sys6(SYS_futex, (long)addr, op, val, (long)val2, (long)addr2, val3);
}

static long our_futex(uint32_t *addr, int op, uint32_t val, uintptr_t val2, uint32_t *addr2, uint32_t val3)
{
    long ret = syscall(SYS_futex, addr, op, val, val2, addr2, val3);
    return ret < 0 ? -errno : ret;
}

static uint32_t *some_address(unsigned *seed)
{
    switch (rand_r(seed) % 12) {
    case 0:
        return NULL;
    case 1:
        return (uint32_t *)((char *)words + 2);
    case 2:
        return (uint32_t *)UINT64_C(0xffff800000000000);
    default:
        return &words[rand_r(seed) % 2];
    }
}

/* Calls that wait for nothing or a little, with all kinds of arguments: the same result and words as the
 * kernel's. */
START_TEST(futex_as_kernel)
{
    static const int ops[] = {FUTEX_WAIT,
                              FUTEX_WAKE,
                              FUTEX_WAIT_BITSET,
                              FUTEX_WAKE_BITSET,
                              FUTEX_REQUEUE,
                              FUTEX_CMP_REQUEUE,
                              FUTEX_WAKE_OP,
                              FUTEX_UNLOCK_PI,
                              2,
                              14,
                              77};
    static const uint32_t values[] = {0, 1, 2, 3, INT_MAX, UINT32_MAX, 0x80000000};
    unsigned seed = 1;
    for (int i = 0; i < 30000; i++) {
        int op = ops[(unsigned)rand_r(&seed) % (sizeof ops / sizeof ops[0])];
        uint32_t before[2] = {values[rand_r(&seed) % 4], values[rand_r(&seed) % 4]};
        uint32_t *addr = some_address(&seed), *addr2 = some_address(&seed);
        uint32_t val = values[rand_r(&seed) % 7], val3 = values[rand_r(&seed) % 7];
        struct timespec t = {rand_r(&seed) % 3 - 1, rand_r(&seed) % 8 ? 1000 : 1000000000};
        uintptr_t val2 = values[rand_r(&seed) % 7];
        if (op == FUTEX_WAIT || op == FUTEX_WAIT_BITSET) {
            /* A relative time is not to be a second. */
            if (op == FUTEX_WAIT && t.tv_sec > 0)
                t.tv_sec = 0;
            val2 = (uintptr_t)&t;
        }
        if (op == FUTEX_WAKE_OP) {
            val3 = (uint32_t)rand_r(&seed) << 16 ^ (uint32_t)rand_r(&seed);
            if (val3 >> 31)
                val3 &= ~(uint32_t)(0xfe0 << 12); /* the kernel logs shifts by more than 31 */
        }
        if (rand_r(&seed) % 4)
            op |= FUTEX_PRIVATE_FLAG;
        if (rand_r(&seed) % 6 == 0)
            op |= FUTEX_CLOCK_REALTIME;
        memcpy(words, before, sizeof words);
        long expected = kernel_futex(addr, op, val, val2, addr2, val3);
        uint32_t after[2] = {words[0], words[1]};
        memcpy(words, before, sizeof words);
        long got = our_futex(addr, op, val, val2, addr2, val3);
        ck_assert_msg(got == expected && memcmp(after, words, sizeof words) == 0,
                      "call %d: futex(%p, %#x, %#x, %#lx {%ld, %ld}, %p, %#x) with words %x %x: %ld, kernel %ld", i,
                      (void *)addr, (unsigned)op, val, (long)val2, (long)t.tv_sec, t.tv_nsec, (void *)addr2, val3, before[0],
                      before[1], got, expected);
    }
}
END_TEST

static _Atomic pid_t sleepers[8];

static void going_to_sleep(void)
{
    for (int i = 0;; i++) {
        pid_t none = 0;
        if (atomic_compare_exchange_strong(&sleepers[i], &none, gettid()))
            return;
    }
}

static void all_asleep(void)
{
    for (int i = 0; i < 8; i++) {
        char path[64], state = 0;
        while (state != 'S') {
            usleep(1000);
            snprintf(path, sizeof path, "/proc/self/task/%d/stat", atomic_load(&sleepers[i]));
            FILE *f = fopen(path, "r");
            if (f && fscanf(f, "%*d %*s %c", &state) != 1)
                state = 0;
            if (f)
                fclose(f);
        }
    }
}

static void *wait_in_kernel(void *arg)
{
    going_to_sleep();
    long r = kernel_futex(&words[0], FUTEX_WAIT | (int)(intptr_t)arg, 0, 0, NULL, 0);
    ck_assert(r == 0 || r == -EAGAIN);
    return NULL;
}

static void *wait_here(void *arg)
{
    going_to_sleep();
    long r = our_futex(&words[0], FUTEX_WAIT | (int)(intptr_t)arg, 0, 0, NULL, 0);
    ck_assert(r == 0 || r == -EAGAIN);
    return NULL;
}

/* Waiters of both queues are counted, woken and moved as of one. */
START_TEST(futex_both_queues)
{
    int private = _i ? FUTEX_PRIVATE_FLAG : 0;
    for (int i = 0; i < 30; i++) {
        pthread_t threads[8];
        words[0] = words[1] = 0;
        for (int j = 0; j < 8; j++)
            sleepers[j] = 0;
        for (int j = 0; j < 8; j++)
            pthread_create(&threads[j], NULL, j % 2 ? wait_here : wait_in_kernel, (void *)(intptr_t) private);
        all_asleep();
        switch (i % 3) {
        case 0:
            ck_assert_int_eq(our_futex(&words[0], FUTEX_WAKE | private, 6, 0, NULL, 0), 6);
            ck_assert_int_eq(our_futex(&words[0], FUTEX_WAKE | private, INT_MAX, 0, NULL, 0), 2);
            break;
        case 1:
            ck_assert_int_eq(our_futex(&words[0], FUTEX_CMP_REQUEUE | private, 1, 6, &words[1], 0), 7);
            ck_assert_int_eq(our_futex(&words[0], FUTEX_WAKE | private, 4, 0, NULL, 0), 1);
            ck_assert_int_eq(our_futex(&words[1], FUTEX_WAKE | private, INT_MAX, 0, NULL, 0), 6);
            break;
        default: /* words[0] was 0: wake there, and set it to 5 */
            ck_assert_int_eq(
                our_futex(&words[1], FUTEX_WAKE_OP | private, 1, 8, &words[0], FUTEX_OP(FUTEX_OP_SET, 5, FUTEX_OP_CMP_EQ, 0)),
                8);
            ck_assert_uint_eq(words[0], 5);
        }
        for (int j = 0; j < 8; j++)
            pthread_join(threads[j], NULL);
    }
    ck_assert_int_eq(syscall(SYS_gettid), gettid());
    ck_assert_int_eq(syscall(SYS_getppid), getppid());
    ck_assert_int_eq(syscall(-5), -1);
    ck_assert_int_eq(errno, ENOSYS);
}
END_TEST

/* --- deadlines ----------------------------------------------------------------------------------------- */

START_TEST(deadlines)
{
    struct timespec t = {0, 0}, negative = {-5, 0}, huge = {INT64_MAX, 0}, far = {1l << 40, 0};
    ck_assert_uint_eq(vt_deadline_at(NULL), VT_NEVER);
    ck_assert_uint_eq(vt_deadline_at(&t), 0);
    ck_assert_uint_eq(vt_deadline_at(&negative), 0);
    ck_assert_uint_eq(vt_deadline_at(&huge), VT_NEVER);
    ck_assert_uint_eq(vt_deadline_at(&far), VT_NEVER);
    ck_assert_uint_eq(vt_deadline_in(VT_NEVER), VT_NEVER);
    ck_assert_uint_eq(vt_park_clock(CLOCK_MONOTONIC), 0);
    ck_assert_int_eq((int)(vt_park_clock(CLOCK_TAI) >> 4 & 15), CLOCK_TAI);
    ck_assert_uint_eq(vt_park_clock(CLOCK_REALTIME) & VT_PARK_INTERRUPTIBLE, 0);
    t = after_ms(CLOCK_REALTIME, 1000);
    struct vt_until u;
    vt_until_begin(&u, vt_current(), vt_deadline_at(&t), vt_park_clock(CLOCK_REALTIME));
    ck_assert(!vt_until_passed(&u));
    vt_until_end(&u, vt_current());
    vt_until_begin(&u, vt_current(), VT_NEVER, vt_park_clock(CLOCK_REALTIME));
    ck_assert(!vt_until_passed(&u));
    vt_until_begin(&u, vt_current(), 0, 0);
    ck_assert(vt_until_passed(&u));
    t.tv_nsec = 1000000000;
    ck_assert(!vt_nsec_valid(&t));
    t.tv_nsec = -1;
    ck_assert(!vt_nsec_valid(&t));
    t.tv_nsec = 999999999;
    ck_assert(vt_nsec_valid(&t));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sync");
    TCase *c = tcase_create("sync");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, deadlines);
    tcase_add_test(c, futex_as_kernel);
    tcase_add_loop_test(c, futex_both_queues, 0, 2);
    tcase_add_loop_test(c, mutex_excludes, 0, 4);
    tcase_add_test(c, mutex_freed_by_last_user);
    tcase_add_loop_test(c, cond_passes_items, 0, 16);
    tcase_add_loop_test(c, cond_with_foreign_mutex, 0, 16);
#ifndef __SANITIZE_THREAD__
    /* It makes mistakes of which libc returns the error. */
    tcase_add_loop_test(c, mutex_as_libc, 0, 2);
    /* The mutex changes from our words to libc's functions and back, and the sanitizer sees no order between
     * them. */
    tcase_add_loop_test(c, shared_cond, 0, 4);
#endif
    tcase_add_test(c, cond_destroyed_after_wake);
    tcase_add_test(c, cond_broadcast_beats_timeout);
    tcase_add_test(c, cond_errors);
    tcase_add_loop_test(c, rwlock_excludes, 0, 3);
    tcase_add_loop_test(c, rwlock_kinds, 0, 3);
    tcase_add_loop_test(c, rwlock_as_libc, 0, 3);
    tcase_add_test(c, rwlock_freed_by_last_user);
    tcase_add_test(c, sem_counts);
    tcase_add_test(c, sem_freed_after_wait);
    tcase_add_test(c, sem_interrupted);
    tcase_add_test(c, barrier_meets);
    tcase_add_test(c, barrier_destroyed_at_once);
    tcase_add_test(c, once_runs_once);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
