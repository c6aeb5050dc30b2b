#include "stock.h"

#include "place.h"
#include "sys.h"
#include "thread.h"

#define PACK 32
/* Kernel threads that have a stock of their own; the others share one. */
#define OWN_STOCKS 64

struct vt_pool vt_pool;

static struct vt_stock own[OWN_STOCKS], common;
static _Atomic bool own_taken[OWN_STOCKS];
static struct vt_lock common_lock = VT_LOCK_INIT;

/* --- descriptors ---------------------------------------------------------------------------------------------------- */

static struct vt_thread *next_of(const struct vt_thread *t)
{
    return (struct vt_thread *)t->task.next;
}

static void set_next(struct vt_thread *t, struct vt_thread *next)
{
    t->task.next = (struct vt_task *)next;
}

struct vt_thread *vt_descriptor(unsigned index)
{
    struct vt_thread *chunk =
        index < VT_CHUNK * VT_MAX_CHUNKS ? atomic_load_explicit(&vt_pool.chunk[index / VT_CHUNK], memory_order_acquire) : NULL;
    return chunk ? &chunk[index % VT_CHUNK] : NULL;
}

unsigned vt_descriptors(void)
{
    return atomic_load_explicit(&vt_pool.used, memory_order_acquire);
}

/* Under the lock: PACK new ones. */
static struct vt_thread *make_pack(void)
{
    unsigned used = atomic_load_explicit(&vt_pool.used, memory_order_relaxed);
    if (used == VT_CHUNK * VT_MAX_CHUNKS)
        return NULL;
    if (used % VT_CHUNK == 0) {
        /* The first needs no memory from anybody: a process without threads must be able to lock when there is none left. */
        static struct vt_thread first[VT_CHUNK];
        struct vt_thread *chunk = used == 0 ? first : vt_sys_map(sizeof *chunk * VT_CHUNK);
        if (!chunk)
            return NULL;
        atomic_store_explicit(&vt_pool.chunk[used / VT_CHUNK], chunk, memory_order_release);
    }
    struct vt_thread *pack = vt_descriptor(used);
    for (unsigned i = 0; i < PACK; i++) {
        pack[i].index = used + i;
        set_next(&pack[i], i + 1 < PACK ? &pack[i + 1] : NULL);
    }
    atomic_store_explicit(&vt_pool.used, used + PACK, memory_order_release);
    return pack;
}

/* A chain of *n free ones. */
static struct vt_thread *take_pack(unsigned *n)
{
    struct vt_thread *t;
    *n = PACK;
    vt_lock(&vt_pool.lock);
    if ((t = vt_pool.odd)) {
        struct vt_thread *last = t;
        for (*n = 1; *n < PACK && next_of(last); ++*n)
            last = next_of(last);
        vt_pool.odd = next_of(last);
        set_next(last, NULL);
    } else if ((t = vt_pool.packs)) {
        vt_pool.packs = t->arg;
    } else {
        t = make_pack();
    }
    vt_unlock(&vt_pool.lock);
    return t;
}

static void give_pack(struct vt_thread *pack)
{
    vt_lock(&vt_pool.lock);
    pack->arg = vt_pool.packs;
    vt_pool.packs = pack;
    vt_unlock(&vt_pool.lock);
}

static void give_odd(struct vt_thread *chain)
{
    if (!chain)
        return;
    struct vt_thread *last = chain;
    while (next_of(last))
        last = next_of(last);
    vt_lock(&vt_pool.lock);
    set_next(last, vt_pool.odd);
    vt_pool.odd = chain;
    vt_unlock(&vt_pool.lock);
}

static void prefetch(const struct vt_thread *t)
{
    for (size_t i = 0; t && i < sizeof *t; i += 64)
        __builtin_prefetch((const char *)t + i, 1);
}

struct vt_thread *vt_stock_get(struct vt_stock *s)
{
    if (!s->first && s->spare) {
        s->first = s->spare;
        s->n = PACK;
        s->spare = NULL;
    }
    if (!s->first && !(s->first = take_pack(&s->n)))
        return NULL;
    struct vt_thread *t = s->first;
    s->first = next_of(t);
    s->n--;
    prefetch(s->first);
    set_next(t, NULL);
    return t;
}

void vt_stock_put(struct vt_stock *s, struct vt_thread *t)
{
    t->generation++;
    t->gone_detached = atomic_load_explicit(&t->life, memory_order_relaxed) & VT_DETACHED ? t->handle : 0;
    t->handle = 0;
    set_next(t, s->first);
    s->first = t;
    if (++s->n < PACK)
        return;
    struct vt_thread *full = s->spare;
    s->spare = s->first;
    s->first = NULL;
    s->n = 0;
    if (full)
        give_pack(full);
}

/* --- whose stock ----------------------------------------------------------------------------------------------------- */

struct vt_stock *vt_stock_begin(struct vt_thread *me)
{
    struct vt_place *p = me->carrier ? atomic_load_explicit(&me->carrier->place, memory_order_relaxed) : NULL;
    if (p)
        return &p->stock;
    if (me->stock)
        return me->stock;
    if (!me->carrier)
        for (unsigned i = 0; i < OWN_STOCKS; i++)
            if (!atomic_load_explicit(&own_taken[i], memory_order_relaxed) &&
                !atomic_exchange_explicit(&own_taken[i], true, memory_order_acquire))
                return me->stock = &own[i];
    vt_lock(&common_lock);
    return &common;
}

void vt_stock_end(struct vt_stock *s)
{
    if (s == &common)
        vt_unlock(&common_lock);
}

void vt_stock_leave(struct vt_thread *me)
{
    struct vt_stock *s = me->stock;
    if (!s)
        return;
    me->stock = NULL;
    give_odd(s->first);
    if (s->spare)
        give_pack(s->spare);
    s->first = s->spare = NULL;
    s->n = 0;
    vt_slot_cache_flush(&s->slots);
    /* What it has counted stays. */
    atomic_store_explicit(&own_taken[s - own], false, memory_order_release);
}

struct vt_thread *vt_descriptor_get(void)
{
    vt_lock(&common_lock);
    struct vt_thread *t = vt_stock_get(&common);
    vt_unlock(&common_lock);
    return t;
}

void vt_descriptor_put(struct vt_thread *t)
{
    vt_lock(&common_lock);
    vt_stock_put(&common, t);
    vt_unlock(&common_lock);
}

const struct vt_stock_view vt_stock_view = {&common, own, OWN_STOCKS, sizeof(struct vt_stock)};

/* --- counting -------------------------------------------------------------------------------------------------------- */

static void count(_Atomic uint64_t *n)
{
    /* Release: whoever sees the count sees what was counted before. */
    atomic_store_explicit(n, atomic_load_explicit(n, memory_order_relaxed) + 1, memory_order_release);
}

void vt_stock_created(struct vt_stock *s)
{
    count(&s->created);
}

void vt_stock_ended(struct vt_stock *s)
{
    count(&s->ended);
}

static uint64_t sum(size_t offset)
{
#define OF(s) atomic_load_explicit((_Atomic uint64_t *)((char *)(s) + offset), memory_order_acquire)
    uint64_t n = OF(&common);
    for (unsigned i = 0; i < OWN_STOCKS; i++)
        n += OF(&own[i]);
    for (unsigned i = 0; i < vt_sched.nplaces; i++)
        n += OF(&vt_sched.places[i].stock);
    return n;
#undef OF
}

uint64_t vt_threads_created(void)
{
    return sum(offsetof(struct vt_stock, created));
}

uint64_t vt_threads_living(void)
{
    /* Ends first. Each that is counted belongs to a thread whose making is counted by then; so if the sums are equal, all
     * that had been made at the moment between the two had ended. */
    uint64_t ended = sum(offsetof(struct vt_stock, ended));
    return vt_threads_created() - ended;
}

/* --- fork ------------------------------------------------------------------------------------------------------------ */

static unsigned inherited;       /* in a forked child that has not collected them: so many descriptors are the parent's */
static struct vt_thread *caller; /* of the last fork, in its child; NULL if it had no descriptor */

void vt_stock_fork_child(struct vt_thread *me)
{
    /* The others' slots stay unused, and what was in stocks too: it is the parent's business. */
    for (unsigned i = 0; i < OWN_STOCKS; i++) {
        if (!atomic_load_explicit(&own_taken[i], memory_order_relaxed) &&
            !atomic_load_explicit(&own[i].created, memory_order_relaxed) &&
            !atomic_load_explicit(&own[i].ended, memory_order_relaxed))
            continue;
        own[i] = (struct vt_stock){0};
        atomic_store_explicit(&own_taken[i], false, memory_order_relaxed);
    }
    common = (struct vt_stock){0};
    common_lock = vt_pool.lock = (struct vt_lock)VT_LOCK_INIT;
    vt_pool.packs = vt_pool.odd = NULL;
    if (me)
        me->stock = NULL;
    inherited = vt_descriptors();
    caller = me;
}

void vt_stock_collect(void)
{
    vt_lock(&common_lock);
    for (unsigned i = 0; i < inherited; i++) {
        struct vt_thread *t = vt_descriptor(i);
        if (t != caller) {
            atomic_store_explicit(&t->alive, 0, memory_order_relaxed);
            atomic_store_explicit(&t->adopted, 0, memory_order_relaxed);
            t->stock = NULL;
            vt_stock_put(&common, t);
        }
    }
    inherited = 0;
    vt_unlock(&common_lock);
}
