#include "rwlock.h"

#include "clock.h"
#include "handoff.h"
#include "real.h"

#include <errno.h>

static _Atomic uint32_t *state_of(pthread_rwlock_t *l)
{
    return vt_word(&l->__data.__readers);
}

static void *readers_of(pthread_rwlock_t *l)
{
    return &l->__data.__wrphase_futex;
}

static void *writers_of(pthread_rwlock_t *l)
{
    return &l->__data.__writers_futex;
}

static bool prefers_writers(const pthread_rwlock_t *l)
{
    return vt_load(&l->__data.__flags) == PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP;
}

static bool shared(const pthread_rwlock_t *l)
{
    return vt_load(&l->__data.__shared) != 0;
}

static bool reader_may(const pthread_rwlock_t *l, uint32_t s)
{
    return !(s & VT_RW_WRITER) && !((s & VT_RW_WRITERS_WAIT) && (s & VT_RW_COUNT) && prefers_writers(l));
}

static bool writer_may(uint32_t s)
{
    return !(s & (VT_RW_WRITER | VT_RW_COUNT));
}

/* 0, EBUSY (*s says why), EAGAIN. Acquire, for what the last writer wrote. */
static int take_read(pthread_rwlock_t *l, uint32_t *s)
{
    *s = atomic_load_explicit(state_of(l), memory_order_relaxed);
    while (reader_may(l, *s)) {
        if ((*s & VT_RW_COUNT) == VT_RW_COUNT)
            return EAGAIN;
        uint32_t taken = *s + 1;
        /* Parked readers may come in as well, unless a writer waits that they must not pass. */
        bool wake = (*s & VT_RW_READERS_WAIT) && reader_may(l, taken);
        if (wake)
            taken &= ~VT_RW_READERS_WAIT;
        if (atomic_compare_exchange_weak_explicit(state_of(l), s, taken, memory_order_acquire, memory_order_relaxed)) {
            if (vt_unlikely(wake))
                vt_unpark(readers_of(l), UINT32_MAX, VT_BITS_ALL);
            return 0;
        }
    }
    return EBUSY;
}

/* Acquire, for what the last holders wrote. */
static int take_write(pthread_rwlock_t *l, uint32_t *s)
{
    *s = atomic_load_explicit(state_of(l), memory_order_relaxed);
    while (writer_may(*s)) {
        if (atomic_compare_exchange_weak_explicit(state_of(l), s, *s | VT_RW_WRITER, memory_order_acquire,
                                                  memory_order_relaxed)) {
            vt_store(&l->__data.__cur_writer, vt_tid());
            return 0;
        }
    }
    return EBUSY;
}

/* Both with the bucket locked; seq_cst, as in vt_park. */
static bool reader_must_wait(void *arg)
{
    uint32_t s = atomic_load_explicit(state_of(arg), memory_order_seq_cst);
    return (s & VT_RW_READERS_WAIT) && !reader_may(arg, s);
}

static bool writer_must_wait(void *arg)
{
    uint32_t s = atomic_load_explicit(state_of(arg), memory_order_seq_cst);
    return (s & VT_RW_WRITERS_WAIT) && !writer_may(s);
}

/* --- leaving ------------------------------------------------------------------------------------------- */

/* One holder less. Called as the last access to the lock, unless it only concerns a bit. */
static uint32_t without_holder(uint32_t s)
{
    return s & VT_RW_WRITER ? s & ~VT_RW_WRITER : s - 1;
}

struct leaving {
    pthread_rwlock_t *lock;
    bool holder;  /* the caller holds the lock and frees it here */
    bool writer;  /* a writer has been woken */
    bool readers; /* all parked readers are to be woken */
};

/* With the bucket of the writers locked: frees the lock, and brings the bit into line with the queue. Without
 * a holder to free and a writer to wake, the lock may be gone, except to those who have said so. */
static bool leave(void *arg, uint32_t bits, bool more)
{
    struct leaving *v = arg;
    uint32_t s = atomic_load_explicit(state_of(v->lock), memory_order_relaxed), left;
    bool woken = bits != 0, granted;
    v->writer = woken;
    do {
        left = v->holder ? without_holder(s) : s;
        granted = bits == VT_HUNGRY && v->holder && writer_may(left);
        if (granted)
            left |= VT_RW_WRITER;
        if (!more)
            left &= ~VT_RW_WRITERS_WAIT;
        /* The woken writer will see to the readers if they cannot come in before it. */
        v->readers = !woken && (left & VT_RW_READERS_WAIT) && reader_may(v->lock, left);
        if (v->readers)
            left &= ~VT_RW_READERS_WAIT;
        /* Release, for who takes the lock next; acquire, as the one that it is granted to sees through us what the other
         * readers did, who left before. */
    } while (!atomic_compare_exchange_weak_explicit(state_of(v->lock), &s, left, memory_order_acq_rel, memory_order_relaxed));
    return granted;
}

/* A holder leaves, or a writer gives up waiting; the first parked writer is woken, and if there is none the
 * readers. */
static void leave_to_writer(pthread_rwlock_t *l, bool holder)
{
    struct leaving v = {.lock = l, .holder = holder};
    vt_unpark_one(writers_of(l), leave, &v);
    if (v.readers)
        vt_unpark(readers_of(l), UINT32_MAX, VT_BITS_ALL);
}

/* After the lock has been freed with writers' bit set and no reader was there to be woken. Only a parked
 * writer makes it certain that the lock still exists. */
static bool writer_instead(void *arg, uint32_t bits, bool more)
{
    if (bits && !more)
        atomic_fetch_and_explicit(state_of(arg), ~(uint32_t)VT_RW_WRITERS_WAIT, memory_order_relaxed);
    return false;
}

struct freeing {
    pthread_rwlock_t *lock;
    uint32_t left;    /* the state then */
    bool woken, more; /* there was a reader; others are to be woken */
};

/* With the bucket of the readers locked: a writer frees the lock, or gives it to the first parked reader, whom the others
 * then join. */
static bool free_to_reader(void *arg, uint32_t bits, bool more)
{
    struct freeing *f = arg;
    uint32_t s = atomic_load_explicit(state_of(f->lock), memory_order_relaxed);
    f->woken = bits != 0;
    do {
        f->left = s & ~VT_RW_WRITER;
        if (bits == VT_HUNGRY)
            f->left++;
        /* The others stay where they are if a writer has to come first. */
        f->more = more && reader_may(f->lock, f->left);
        if (f->more || !more)
            f->left &= ~VT_RW_READERS_WAIT;
        /* Release, for who takes the lock next. */
    } while (
        !atomic_compare_exchange_weak_explicit(state_of(f->lock), &s, f->left, memory_order_release, memory_order_relaxed));
    return bits == VT_HUNGRY;
}

static void leave_to_readers(pthread_rwlock_t *l)
{
    struct freeing f = {.lock = l};
    vt_unpark_one(readers_of(l), free_to_reader, &f);
    if (f.more)
        vt_unpark(readers_of(l), UINT32_MAX, VT_BITS_ALL);
    if (!f.woken && (f.left & VT_RW_WRITERS_WAIT))
        vt_unpark_one(writers_of(l), writer_instead, l);
}

static void unlock_write(pthread_rwlock_t *l)
{
    vt_store(&l->__data.__cur_writer, 0);
    bool prefer = prefers_writers(l);
    uint32_t s = atomic_load_explicit(state_of(l), memory_order_relaxed);
    do {
        if ((s & VT_RW_WRITERS_WAIT) && (prefer || !(s & VT_RW_READERS_WAIT))) {
            leave_to_writer(l, true);
            return;
        }
        if (s & VT_RW_READERS_WAIT) {
            leave_to_readers(l);
            return;
        }
        /* Release, for who takes the lock next. */
    } while (
        !atomic_compare_exchange_weak_explicit(state_of(l), &s, s & ~VT_RW_WRITER, memory_order_release, memory_order_relaxed));
}

static void unlock_read(pthread_rwlock_t *l)
{
    uint32_t s = atomic_load_explicit(state_of(l), memory_order_relaxed), left;
    do {
        left = s - 1;
        if (vt_unlikely((left & VT_RW_WAIT) && (left & VT_RW_COUNT) == 0)) {
            if (left & VT_RW_WRITERS_WAIT) {
                leave_to_writer(l, true);
                return;
            }
            left &= ~VT_RW_READERS_WAIT;
        }
        /* Release: what was read must have been read before a writer takes the lock. */
    } while (!atomic_compare_exchange_weak_explicit(state_of(l), &s, left, memory_order_release, memory_order_relaxed));
    if (vt_unlikely((s ^ left) & VT_RW_READERS_WAIT))
        vt_unpark(readers_of(l), UINT32_MAX, VT_BITS_ALL);
}

/* --- the functions ------------------------------------------------------------------------------------- */

/* glibc's checks, in its order, made whether it will wait or not. */
static int check(const pthread_rwlock_t *l, clockid_t clock, const struct timespec *until)
{
    if (until && (!vt_clock_waitable(clock) || !vt_nsec_valid(until)))
        return EINVAL;
    uint32_t writer = vt_load(&l->__data.__cur_writer);
    return writer && writer == vt_tid() ? EDEADLK : 0;
}

static int lock(pthread_rwlock_t *l, bool write, clockid_t clock, const struct timespec *until)
{
    int (*take)(pthread_rwlock_t *, uint32_t *) = write ? take_write : take_read;
    uint32_t s, bit = write ? VT_RW_WRITERS_WAIT : VT_RW_READERS_WAIT;
    int err = take(l, &s);
    for (unsigned n = err != EBUSY || (s & VT_RW_WAIT) ? 0 : vt_spin_limit(vt_load(&l->__data.__cur_writer));
         n && err == EBUSY && !(s & VT_RW_WAIT); n--) {
        vt_cpu_relax();
        err = take(l, &s);
    }
    bool late = until && until->tv_sec < 0;
    uint32_t bits = VT_BITS_ALL;
    uint64_t since = 0;
    while (err == EBUSY) {
        if (late) {
            /* Readers that were kept back by this writer's waiting are not to wait for it any longer. */
            if (write && (s & VT_RW_WRITERS_WAIT))
                leave_to_writer(l, false);
            return ETIMEDOUT;
        }
        if ((s & bit) ||
            atomic_compare_exchange_weak_explicit(state_of(l), &s, s | bit, memory_order_relaxed, memory_order_relaxed)) {
            int woken = vt_park_on(write ? writers_of(l) : readers_of(l), write ? writer_must_wait : reader_must_wait, NULL, l,
                                   vt_deadline_at(until), bits,
                                   VT_PARK_FOR(write ? VT_WAIT_WRLOCK : VT_WAIT_RDLOCK) | vt_park_clock(clock));
            if (woken == VT_GRANTED) {
                if (write)
                    vt_store(&l->__data.__cur_writer, vt_tid());
                return 0;
            }
            late = woken == ETIMEDOUT;
            if (woken == 0)
                bits = vt_bits_after(&since);
        }
        err = take(l, &s);
    }
    return err;
}

int vt_rwlock_rdlock(pthread_rwlock_t *l, clockid_t clock, const struct timespec *until)
{
    int err;
    if (vt_unlikely(shared(l))) {
        if (!until && vt_is_virtual() && (err = vt_real(pthread_rwlock_tryrdlock)(l)) != EBUSY)
            return err;
        vt_handoff_begin("pthread_rwlock_rdlock");
        if (!until)
            err = vt_real(pthread_rwlock_rdlock)(l);
        else if (clock == CLOCK_REALTIME)
            err = vt_real(pthread_rwlock_timedrdlock)(l, until);
        else
            err = vt_real(pthread_rwlock_clockrdlock)(l, clock, until);
        vt_handoff_end();
        return err;
    }
    err = check(l, clock, until);
    return err ? err : lock(l, false, clock, until);
}

int vt_rwlock_wrlock(pthread_rwlock_t *l, clockid_t clock, const struct timespec *until)
{
    int err;
    if (vt_unlikely(shared(l))) {
        if (!until && vt_is_virtual() && (err = vt_real(pthread_rwlock_trywrlock)(l)) != EBUSY)
            return err;
        vt_handoff_begin("pthread_rwlock_wrlock");
        if (!until)
            err = vt_real(pthread_rwlock_wrlock)(l);
        else if (clock == CLOCK_REALTIME)
            err = vt_real(pthread_rwlock_timedwrlock)(l, until);
        else
            err = vt_real(pthread_rwlock_clockwrlock)(l, clock, until);
        vt_handoff_end();
        return err;
    }
    err = check(l, clock, until);
    return err ? err : lock(l, true, clock, until);
}

int vt_rwlock_tryrdlock(pthread_rwlock_t *l)
{
    uint32_t s;
    return vt_unlikely(shared(l)) ? vt_real(pthread_rwlock_tryrdlock)(l) : take_read(l, &s);
}

int vt_rwlock_trywrlock(pthread_rwlock_t *l)
{
    uint32_t s;
    return vt_unlikely(shared(l)) ? vt_real(pthread_rwlock_trywrlock)(l) : take_write(l, &s);
}

int vt_rwlock_unlock(pthread_rwlock_t *l)
{
    if (vt_unlikely(shared(l)))
        return vt_real(pthread_rwlock_unlock)(l);
    uint32_t s = vt_load(&l->__data.__readers);
    /* If we are a holder, this part of the state cannot change under us. Unlocking what is not locked is
     * undefined; it had better do nothing. */
    if (s & VT_RW_WRITER)
        unlock_write(l);
    else if (s & VT_RW_COUNT)
        unlock_read(l);
    return 0;
}
