#include "slot.h"

#include "lock.h"
#include "sys.h"
#include "tcb.h"

#include <errno.h>
#include <linux/sysinfo.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

/* Linux 6.13, include/uapi/asm-generic/mman-common.h. */
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif
/* Linux 5.14 */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define PAGE    4096ul
#define COLOURS 16ul
#define LINE    64ul

/* On top of the stack that was asked for: a signal frame with AMX state takes 12 KiB, and programs ask for
 * stacks with native frames in mind. It is address space and no memory. */
#define ROOM (24ul << 10)

/* A stack whose page at this depth is in memory has been used deeply. */
#define DEEP (28ul << 10)

/* How many puts in a row are looked at after one that was deep, and of a new kind of stack; else one in so
 * many of a slot's puts, and one in so many slots that leave a cache. A look is a system call. */
#define DEEP_ALERT       64
#define DEEP_SAMPLE_PUTS 32
#define DEEP_SAMPLE_COLD 16

/* A pack of slots is cut at once when so many times as many threads have been there already. */
#define CUT_SHARE 16

#define CLASSES    128
#define SLAB_FIRST 16
#define SLAB_MOST  1024
#define SLAB_BYTES (16ul << 30)
#define SIZE_MOST  (1ul << 46)
#define GUARD_MOST (1ul << 30)

struct slab {
    struct slab *next;
    char *lo, *hi;
    size_t stride;
    struct vt_slot slot[]; /* those not yet cut have stack_lo NULL */
};

struct vt_slot_class {
    size_t stack, guard; /* in bytes; both 0 for slots that hold TLS and TCB only */
    size_t stride;
    struct vt_lock lock;         /* guards what follows */
    struct vt_slot *warm, *cold; /* packs of free slots: with memory, and without */
    struct slab *slab;           /* the newest */
    unsigned cut, slab_slots;    /* used of it, and all */
    unsigned next_slots;
    unsigned made;
    _Atomic unsigned alert; /* looks for deep stacks left to be made */
    _Atomic bool hungry;    /* somebody has had to cut a whole pack since one was last made ahead */
    _Atomic bool scarce;    /* what caches would keep may be what another thread finds no room for: no caches */
} __attribute__((aligned(LINE)));

static struct vt_slot_class classes[CLASSES];
static _Atomic unsigned n_classes;
static struct vt_lock classes_lock = VT_LOCK_INIT;
void (*vt_slot_surplus)(void);
static _Atomic bool surplus;                 /* it has been called */
static struct vt_slot_class *_Atomic hungry; /* the class of which a pack was cut last */

static struct slab *_Atomic slabs; /* newest first; only grows */

static _Atomic uint64_t peak, reserved, n_slabs, guards[3], guards_missing, deep_stacks, n_made, n_free, n_warm;

const struct vt_slot_view vt_slot_view = {
    &n_made, &n_free, &peak, &slabs, offsetof(struct slab, next), offsetof(struct slab, lo), offsetof(struct slab, hi)};

/* Set at the first slab, under classes_lock. */
static size_t tls_size;     /* whole pages at the top of a slot, colours included */
static uint64_t warm_slots; /* free slots that keep their memory */
static bool overcommit_never;
static _Atomic int markers;        /* 0 not known, 1 they work, -1 they do not */
static _Atomic int64_t map_budget; /* mappings that guards may still cost */

static char *align_down(char *p, size_t to)
{
    return p - ((uintptr_t)p & (to - 1));
}

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) & ~(to - 1);
}

/* --- the system's limits --- */

static uint64_t read_number(const char *path, uint64_t fallback)
{
    char buf[32] = "";
    long fd = vt_sys4(SYS_openat, -100 /* AT_FDCWD */, (long)path, 02000000 /* O_RDONLY | O_CLOEXEC */, 0);
    if (fd < 0)
        return fallback;
    long n = vt_sys3(SYS_read, fd, (long)buf, sizeof(buf));
    vt_sys1(SYS_close, fd);
    if (n <= 0 || buf[0] < '0' || buf[0] > '9')
        return fallback;
    uint64_t value = 0;
    for (long i = 0; i < n && buf[i] >= '0' && buf[i] <= '9'; i++)
        value = value * 10 + (uint64_t)(buf[i] - '0');
    return value;
}

static void all_executable(void);

/* Under classes_lock. */
static void init(void)
{
    if (tls_size)
        return;
    /* Free memory that is kept warm: a 64th of all, at three pages a slot with its page table. */
    struct sysinfo info = {0};
    vt_sys1(SYS_sysinfo, (long)&info);
    uint64_t slots = (uint64_t)info.totalram * info.mem_unit / 64 / (3 * PAGE);
    warm_slots = slots < 1024 ? 1024 : slots > 65536 ? 65536 : slots;
    overcommit_never = read_number("/proc/sys/vm/overcommit_memory", 0) == 2;
    atomic_store_explicit(&map_budget, (int64_t)(read_number("/proc/sys/vm/max_map_count", 65530) / 2), memory_order_relaxed);
    tls_size = round_up(vt_tcb_size() + (COLOURS - 1) * LINE, PAGE);
    vt_tcb_exec_wanted = all_executable;
}

/* --- classes --- */

/* Up to the next of four steps from a power of two to the next; small numbers exactly. */
static size_t round_stack(size_t size)
{
    size_t pages = round_up(size, PAGE) / PAGE;
    if (pages > 8)
        pages = round_up(pages, 1ul << (63 - __builtin_clzl(pages) - 2));
    return pages * PAGE;
}

/* To no page, one, or a power of two of them. */
static size_t round_guard(size_t size)
{
    size_t pages = round_up(size, PAGE) / PAGE;
    if (pages > 1)
        pages = 1ul << (64 - __builtin_clzl(pages - 1));
    return pages * PAGE;
}

static struct vt_slot_class *find_class(size_t stack, size_t guard)
{
    /* Acquire pairs with the release below: what is counted is complete. */
    unsigned n = atomic_load_explicit(&n_classes, memory_order_acquire);
    for (unsigned i = 0; i < n; i++)
        if (classes[i].stack == stack && classes[i].guard == guard)
            return &classes[i];
    return NULL;
}

static struct vt_slot_class *get_class(size_t stack, size_t guard)
{
    struct vt_slot_class *c = find_class(stack, guard);
    if (c)
        return c;
    vt_lock(&classes_lock);
    init();
    c = find_class(stack, guard);
    unsigned n = atomic_load_explicit(&n_classes, memory_order_relaxed);
    if (!c && n < CLASSES) {
        c = &classes[n];
        c->stack = stack;
        c->guard = guard;
        size_t pages = (guard + stack + (stack ? ROOM : 0) + tls_size) / PAGE;
        c->stride = (pages | 1) * PAGE;
        c->next_slots = SLAB_FIRST;
        atomic_store_explicit(&c->alert, DEEP_ALERT, memory_order_relaxed);
        atomic_store_explicit(&n_classes, n + 1, memory_order_release);
    }
    /* All classes taken: the least that is large enough. */
    for (unsigned i = 0; !c && i < n; i++)
        if (classes[i].stack >= stack && classes[i].guard >= guard && (stack != 0) == (classes[i].stack != 0))
            c = &classes[i];
    for (unsigned i = 0; c && c->stack != stack && i < n; i++)
        if (classes[i].stack >= stack && classes[i].guard >= guard && (stack != 0) == (classes[i].stack != 0) &&
            classes[i].stride < c->stride)
            c = &classes[i];
    vt_unlock(&classes_lock);
    return c;
}

/* --- slabs --- */

static bool failed(long ret)
{
    return ret < 0 && ret > -4096;
}

/* How many bytes a slab may have, so that the program still finds what it would find without us. */
static size_t slab_limit(void)
{
    size_t most = SLAB_BYTES;
    struct {
        uint64_t cur, max;
    } as = {~0ull, ~0ull};
    if (vt_sys4(SYS_prlimit64, 0, RLIMIT_AS, 0, (long)&as) == 0 && as.cur != ~0ull && as.cur / 64 < most)
        most = as.cur / 64;
    if (overcommit_never && most > (32ul << 20))
        most = 32ul << 20;
    return most;
}

/* A module has come that wants executable stacks. Guards stay what they are. */
static void make_executable(struct slab *s)
{
    const long prot = PROT_READ | PROT_WRITE | PROT_EXEC;
    if (atomic_load_explicit(&guards[VT_GUARD_MPROTECT], memory_order_relaxed) == 0) {
        vt_sys3(SYS_mprotect, (long)s->lo, s->hi - s->lo, prot);
        return;
    }
    struct vt_slot *slot = s->slot;
    for (char *lo = s->lo; lo < s->hi; lo += s->stride, slot++) {
        long guard = slot->guard == VT_GUARD_MPROTECT ? slot->guard_size : 0;
        vt_sys3(SYS_mprotect, (long)lo + guard, (long)s->stride - guard, prot);
    }
}

/* A slab that is not seen here sees what it is to be when it has been made: add_slab. */
static void all_executable(void)
{
    atomic_thread_fence(memory_order_seq_cst);
    for (struct slab *s = atomic_load_explicit(&slabs, memory_order_acquire); s; s = s->next)
        make_executable(s);
}

/* Maps a slab of up to n slots. Inaccessible and unlocked first: after mlockall(MCL_FUTURE) the kernel would
 * fill all of it with memory else. */
static char *map_slab(size_t stride, unsigned *n)
{
    int prot = PROT_READ | PROT_WRITE | (vt_tcb_exec_stack() ? PROT_EXEC : 0);
    for (;; *n /= 2) {
        if (*n == 0)
            return NULL;
        size_t size = *n * stride;
        long lo = vt_sys6(SYS_mmap, 0, (long)size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (failed(lo))
            continue;
        vt_sys2(SYS_munlock, lo, (long)size);
        vt_sys3(SYS_madvise, lo, (long)size, MADV_NOHUGEPAGE);
        if (!failed(vt_sys3(SYS_mprotect, lo, (long)size, prot)))
            return (char *)lo; /* NOLINT(performance-no-int-to-ptr) */
        vt_sys2(SYS_munmap, lo, (long)size);
    }
}

/* Under c->lock. */
static bool add_slab(struct vt_slot_class *c)
{
    unsigned n = c->next_slots;
    size_t limit = slab_limit();
    /* The caches of two places, each with two packs, would have a sixteenth of what the process may have, and more. */
    if (limit < SLAB_BYTES && 4 * VT_SLOT_PACK * c->stride > limit * 4)
        atomic_store_explicit(&c->scarce, true, memory_order_relaxed);
    while (n > 1 && n * c->stride > limit)
        n /= 2;
    bool executable = vt_tcb_exec_stack();
    char *lo = map_slab(c->stride, &n);
    if (!lo) {
        atomic_store_explicit(&c->scarce, true, memory_order_relaxed);
        return false;
    }
    struct slab *s = vt_sys_map(sizeof(*s) + n * sizeof(struct vt_slot));
    if (!s) {
        vt_sys2(SYS_munmap, (long)lo, (long)(n * c->stride));
        return false;
    }
    s->lo = lo;
    s->hi = lo + n * c->stride;
    s->stride = c->stride;
    c->slab = s;
    c->slab_slots = n;
    c->cut = 0;
    if (c->next_slots < SLAB_MOST)
        c->next_slots *= 2;
    atomic_fetch_add_explicit(&reserved, n * c->stride, memory_order_relaxed);
    atomic_fetch_add_explicit(&n_slabs, 1, memory_order_relaxed);
    s->next = atomic_load_explicit(&slabs, memory_order_relaxed);
    /* Release pairs with vt_slot_find: the slab that is found is complete. */
    while (!atomic_compare_exchange_weak_explicit(&slabs, &s->next, s, memory_order_release, memory_order_relaxed))
        ;
    atomic_thread_fence(memory_order_seq_cst);
    if (!executable && vt_tcb_exec_stack())
        make_executable(s);
    return true;
}

static uint8_t install_guard(char *lo, size_t size)
{
    if (size == 0)
        return VT_GUARD_NONE;
    int state = atomic_load_explicit(&markers, memory_order_relaxed);
    if (state >= 0) {
        long ret = vt_sys3(SYS_madvise, (long)lo, (long)size, MADV_GUARD_INSTALL);
        if (state == 0)
            atomic_store_explicit(&markers, ret == 0 ? 1 : -1, memory_order_relaxed);
        if (ret == 0)
            return VT_GUARD_MARKER;
    }
    if (atomic_fetch_sub_explicit(&map_budget, 2, memory_order_relaxed) >= 2 &&
        !failed(vt_sys3(SYS_mprotect, (long)lo, (long)size, PROT_NONE)))
        return VT_GUARD_MPROTECT;
    atomic_fetch_add_explicit(&map_budget, 2, memory_order_relaxed);
    return VT_GUARD_NONE;
}

/* The first use of a slot. */
static void cut(struct vt_slot_class *c, struct slab *s, unsigned i)
{
    struct vt_slot *slot = &s->slot[i];
    char *lo = s->lo + i * c->stride;
    slot->class_index = (uint16_t)(c - classes);
    slot->stack_size = c->stack;
    slot->uses = (uint16_t)(1 + i % (DEEP_SAMPLE_PUTS - 1)); /* not all are looked at at once */
    slot->top = lo + c->stride - (i % COLOURS) * LINE;
    slot->stack_hi = align_down(slot->top - vt_tcb_size(), LINE);
    slot->guard = install_guard(lo, c->guard);
    slot->guard_size = slot->guard == VT_GUARD_NONE ? 0 : (uint32_t)c->guard;
    atomic_fetch_add_explicit(&guards[slot->guard], 1, memory_order_relaxed);
    if (c->guard && slot->guard == VT_GUARD_NONE)
        atomic_fetch_add_explicit(&guards_missing, 1, memory_order_relaxed);
    /* A signal handler on this thread that finds stack_lo finds the rest; other threads have no business with
     * it yet. */
    atomic_signal_fence(memory_order_release);
    *(char *volatile *)&slot->stack_lo = lo + c->guard;
}

/* --- deep stacks --- */

static void check_deep(struct vt_slot_class *c, struct vt_slot *slot)
{
    slot->checked = true;
    char *top_page = align_down(slot->stack_hi - 1, PAGE);
    char *probe = top_page - DEEP;
    if (probe < slot->stack_lo)
        return;
    unsigned char in_memory = 0;
    unsigned alert = atomic_load_explicit(&c->alert, memory_order_relaxed);
    if (vt_sys3(SYS_mincore, (long)probe, PAGE, (long)&in_memory) == 0 && (in_memory & 1)) {
        vt_sys3(SYS_madvise, (long)slot->stack_lo, top_page - slot->stack_lo, MADV_DONTNEED);
        atomic_fetch_add_explicit(&deep_stacks, 1, memory_order_relaxed);
        alert = DEEP_ALERT + 1;
    }
    if (alert)
        atomic_store_explicit(&c->alert, alert - 1, memory_order_relaxed);
}

/* Gives back all memory of a slot. */
static void cool(struct vt_slot *slot)
{
    if (slot->tcb_ready)
        vt_tcb_drop(slot->tp);
    slot->tcb_ready = false;
    char *end = align_down(slot->top - 1, PAGE) + PAGE;
    vt_sys3(SYS_madvise, (long)slot->stack_lo, end - slot->stack_lo, MADV_DONTNEED);
}

/* --- packs of free slots --- */

/* Cuts up to n new slots. They are a pack; NULL when there is no address space. */
static struct vt_slot *cut_pack(struct vt_slot_class *c, unsigned n)
{
    vt_lock(&c->lock);
    if ((!c->slab || c->cut == c->slab_slots) && !add_slab(c)) {
        vt_unlock(&c->lock);
        return NULL;
    }
    struct slab *s = c->slab;
    unsigned first = c->cut, left = c->slab_slots - first;
    if (n > c->made / CUT_SHARE)
        n = c->made / CUT_SHARE ? c->made / CUT_SHARE : 1;
    if (n > left)
        n = left;
    c->cut += n;
    c->made += n;
    vt_unlock(&c->lock);
    for (unsigned i = first; i < first + n; i++) {
        struct vt_slot *slot = &s->slot[i];
        cut(c, s, i);
        slot->next = i + 1 < first + n ? slot + 1 : NULL;
        if (c->stack) {
            /* One call is cheaper than the two page faults that are sure to come. */
            char *from = align_down(slot->stack_hi - 1, PAGE);
            vt_sys3(SYS_madvise, (long)from, align_down(slot->top - 1, PAGE) + PAGE - from, MADV_POPULATE_WRITE);
        }
    }
    s->slot[first].packed = (uint16_t)n;
    atomic_fetch_add_explicit(&n_made, n, memory_order_relaxed);
    return &s->slot[first];
}

static void note_peak(void)
{
    uint64_t used = atomic_load_explicit(&n_made, memory_order_relaxed) - atomic_load_explicit(&n_free, memory_order_relaxed);
    uint64_t most = atomic_load_explicit(&peak, memory_order_relaxed);
    while (used < (1ull << 63) && used > most &&
           !atomic_compare_exchange_weak_explicit(&peak, &most, used, memory_order_relaxed, memory_order_relaxed))
        ;
}

/* A pack of free slots, or NULL. */
static struct vt_slot *take_pack(struct vt_slot_class *c)
{
    vt_lock(&c->lock);
    struct vt_slot **list = c->warm ? &c->warm : &c->cold;
    struct vt_slot *pack = *list;
    if (pack)
        *list = pack->next_pack;
    vt_unlock(&c->lock);
    if (!pack)
        return NULL;
    if (list == &c->warm)
        atomic_fetch_sub_explicit(&n_warm, pack->packed, memory_order_relaxed);
    atomic_fetch_sub_explicit(&n_free, pack->packed, memory_order_relaxed);
    return pack;
}

static void push_pack(struct vt_slot_class *c, struct vt_slot **list, struct vt_slot *pack)
{
    vt_lock(&c->lock);
    pack->next_pack = *list;
    *list = pack;
    vt_unlock(&c->lock);
}

static void cool_pack(struct vt_slot_class *c, struct vt_slot *pack)
{
    for (struct vt_slot *slot = pack; slot; slot = slot->next)
        cool(slot);
    push_pack(c, &c->cold, pack);
}

static void put_pack(struct vt_slot_class *c, struct vt_slot *pack, unsigned n)
{
    pack->packed = (uint16_t)n;
    bool fits = atomic_fetch_add_explicit(&n_warm, n, memory_order_relaxed) < warm_slots;
    if (fits || vt_slot_surplus) {
        push_pack(c, &c->warm, pack);
    } else {
        atomic_fetch_sub_explicit(&n_warm, n, memory_order_relaxed);
        cool_pack(c, pack);
    }
    atomic_fetch_add_explicit(&n_free, n, memory_order_relaxed);
    if (!fits && vt_slot_surplus && !atomic_load_explicit(&surplus, memory_order_relaxed) &&
        !atomic_exchange_explicit(&surplus, true, memory_order_relaxed))
        vt_slot_surplus();
}

bool vt_slot_trim(void)
{
    if (atomic_load_explicit(&n_warm, memory_order_relaxed) <= warm_slots) {
        atomic_store_explicit(&surplus, false, memory_order_relaxed);
        return false;
    }
    unsigned n = atomic_load_explicit(&n_classes, memory_order_acquire);
    for (unsigned i = 0; i < n; i++) {
        struct vt_slot_class *c = &classes[i];
        vt_lock(&c->lock);
        struct vt_slot *pack = c->warm;
        if (pack)
            c->warm = pack->next_pack;
        vt_unlock(&c->lock);
        if (pack) {
            atomic_fetch_sub_explicit(&n_warm, pack->packed, memory_order_relaxed);
            cool_pack(c, pack);
            return true;
        }
    }
    return false;
}

static struct vt_slot *get_pack(struct vt_slot_class *c, unsigned most)
{
    struct vt_slot *pack = take_pack(c);
    if (!pack) {
        pack = cut_pack(c, most);
        if (pack && pack->packed == VT_SLOT_PACK) {
            atomic_store_explicit(&c->hungry, true, memory_order_relaxed);
            atomic_store_explicit(&hungry, c, memory_order_relaxed);
        }
    }
    if (pack)
        note_peak();
    return pack;
}

bool vt_slot_ahead(void)
{
    struct vt_slot_class *c = atomic_load_explicit(&hungry, memory_order_relaxed);
    if (!c || !atomic_load_explicit(&c->hungry, memory_order_relaxed) ||
        !atomic_exchange_explicit(&c->hungry, false, memory_order_relaxed))
        return false;
    struct vt_slot *pack = cut_pack(c, VT_SLOT_PACK);
    if (pack)
        put_pack(c, pack, pack->packed);
    return pack;
}

/* --- get and put --- */

/* Of the slots that will be got next, slot first: their memory was last used by another processor, or long ago. Each step
 * follows pointers that the one before has fetched. */
static void prefetch(const struct vt_slot *slot)
{
    const struct vt_slot *second = slot->next;
    if (slot->tcb_ready)
        vt_tcb_prefetch_dtv(slot->tp);
    if (!second)
        return;
    __builtin_prefetch(second->next);
    __builtin_prefetch(second->stack_hi - LINE, 1);
    __builtin_prefetch(second->stack_hi - 2 * LINE, 1);
    if (second->tcb_ready)
        vt_tcb_prefetch(second->tp);
}

static int get(struct vt_slot_cache *cache, struct vt_slot_class *c, struct vt_slot **out)
{
    struct vt_slot *slot;
    if (cache && atomic_load_explicit(&c->scarce, memory_order_relaxed)) {
        if (cache->class == c)
            vt_slot_cache_flush(cache);
        cache = NULL;
    }
    if (cache && !cache->head && cache->class == c && cache->spare) {
        cache->head = cache->spare;
        cache->n = VT_SLOT_PACK;
        cache->spare = NULL;
    }
    if (cache && cache->class && cache->class != c)
        vt_slot_cache_flush(cache); /* the program makes another kind of threads now */
    if (cache && !cache->head) {
        if (!(cache->head = get_pack(c, VT_SLOT_PACK)))
            return EAGAIN;
        cache->class = c;
        cache->n = cache->head->packed;
    }
    if (cache) {
        slot = cache->head;
        cache->head = slot->next;
        if (--cache->n)
            prefetch(cache->head);
        else if (!cache->spare)
            cache->class = NULL;
    } else {
        if (!(slot = get_pack(c, 1)))
            return EAGAIN;
        if (slot->next)
            put_pack(c, slot->next, slot->packed - 1u);
    }
    slot->next = NULL;
    slot->in_use = true;
    *out = slot;
    return 0;
}

/* Out of a cache. */
static void give_pack(struct vt_slot_class *c, struct vt_slot *pack, unsigned n)
{
    unsigned i = 0;
    for (struct vt_slot *slot = pack; slot; slot = slot->next)
        if (!slot->checked && (i++ % DEEP_SAMPLE_COLD == 0 || atomic_load_explicit(&c->alert, memory_order_relaxed)))
            check_deep(c, slot);
    put_pack(c, pack, n);
}

int vt_slot_get(struct vt_slot_cache *cache, size_t stack_size, size_t guard_size, struct vt_slot **out)
{
    if (stack_size > SIZE_MOST || guard_size > GUARD_MOST)
        return EINVAL;
    size_t stack = round_stack(stack_size ? stack_size : 1);
    size_t guard = round_guard(guard_size);
    struct vt_slot_class *c = cache ? cache->class : NULL;
    if (!c || c->stack != stack || c->guard != guard)
        c = get_class(stack, guard);
    return c ? get(cache, c, out) : EAGAIN;
}

int vt_slot_wrap(struct vt_slot_cache *cache, void *stackaddr, size_t size, struct vt_slot **out)
{
    /* nptl/allocatestack.c: static TLS and MINIMAL_REST_STACK. */
    uintptr_t end = (uintptr_t)stackaddr + size;
    if (size < vt_tcb_size() + 4096 || end < size)
        return EINVAL;
    struct vt_slot_class *c = get_class(0, 0);
    struct vt_slot *slot;
    int err = c ? get(cache, c, &slot) : EAGAIN;
    if (err)
        return err;
    slot->wrapped = true;
    slot->stack_lo = stackaddr;
    slot->stack_hi = align_down((char *)stackaddr + size, LINE);
    slot->stack_size = (size_t)(slot->stack_hi - slot->stack_lo);
    *out = slot;
    return 0;
}

int vt_slot_tcb(struct vt_slot *slot, unsigned tid)
{
    if (slot->tcb_ready)
        vt_tcb_reset(slot->tp, tid);
    else {
        if (vt_tcb_make(slot->top, tid, &slot->tp) != 0)
            return EAGAIN;
        slot->tcb_ready = true;
    }
    vt_tcb_set_stack(slot->tp, slot->stack_lo, slot->stack_hi, slot->guard_size);
    return 0;
}

void vt_slot_put(struct vt_slot_cache *cache, struct vt_slot *slot)
{
    struct vt_slot_class *c = &classes[slot->class_index];
    slot->in_use = false;
    slot->checked = false;
    if (slot->wrapped) {
        slot->wrapped = false;
        slot->stack_lo = align_down(slot->top - 1, PAGE) + PAGE - c->stride;
        slot->stack_hi = align_down(slot->top - vt_tcb_size(), LINE);
        slot->stack_size = 0;
        slot->checked = true;
    } else if (slot->uses++ % DEEP_SAMPLE_PUTS == 0 || atomic_load_explicit(&c->alert, memory_order_relaxed))
        check_deep(c, slot);
    bool scarce = atomic_load_explicit(&c->scarce, memory_order_relaxed);
    if (!cache || (cache->class && cache->class != c) || scarce) {
        slot->next = NULL;
        put_pack(c, slot, 1);
        if (cache && cache->class == c)
            vt_slot_cache_flush(cache);
        return;
    }
    cache->class = c;
    slot->next = cache->head;
    cache->head = slot;
    if (++cache->n < VT_SLOT_PACK)
        return;
    struct vt_slot *pack = cache->spare;
    cache->spare = cache->head;
    cache->head = NULL;
    cache->n = 0;
    if (pack)
        give_pack(c, pack, VT_SLOT_PACK);
}

void vt_slot_cache_flush(struct vt_slot_cache *cache)
{
    if (cache->head)
        give_pack(cache->class, cache->head, cache->n);
    if (cache->spare)
        give_pack(cache->class, cache->spare, VT_SLOT_PACK);
    *cache = (struct vt_slot_cache){0};
}

struct vt_slot *vt_slot_find(const void *addr)
{
    const char *a = addr;
    for (struct slab *s = atomic_load_explicit(&slabs, memory_order_acquire); s; s = s->next)
        if (a >= s->lo && a < s->hi) {
            struct vt_slot *slot = &s->slot[(size_t)(a - s->lo) / s->stride];
            return *(char *volatile *)&slot->stack_lo ? slot : NULL;
        }
    return NULL;
}

void vt_slot_stats(struct vt_slot_stats *stats)
{
    uint64_t made = atomic_load_explicit(&n_made, memory_order_relaxed);
    uint64_t idle = atomic_load_explicit(&n_free, memory_order_relaxed);
    *stats = (struct vt_slot_stats){
        .in_use = made > idle ? made - idle : 0,
        .peak = atomic_load_explicit(&peak, memory_order_relaxed),
        .made = made,
        .bytes_reserved = atomic_load_explicit(&reserved, memory_order_relaxed),
        .slabs = atomic_load_explicit(&n_slabs, memory_order_relaxed),
        .guards_marker = atomic_load_explicit(&guards[VT_GUARD_MARKER], memory_order_relaxed),
        .guards_mprotect = atomic_load_explicit(&guards[VT_GUARD_MPROTECT], memory_order_relaxed),
        .guards_missing = atomic_load_explicit(&guards_missing, memory_order_relaxed),
        .deep = atomic_load_explicit(&deep_stacks, memory_order_relaxed),
    };
}

void vt_slot_fork_child(void)
{
    unsigned n = atomic_load_explicit(&n_classes, memory_order_relaxed);
    classes_lock = (struct vt_lock)VT_LOCK_INIT;
    for (unsigned i = 0; i < n; i++) {
        struct vt_slot_class *c = &classes[i];
        if (vt_lock_held(&c->lock)) {
            /* Who was changing its lists is not here. What it has is lost, and new slabs come. */
            c->warm = c->cold = NULL;
            c->slab = NULL;
        }
        c->lock = (struct vt_lock)VT_LOCK_INIT;
    }
    atomic_store_explicit(&surplus, false, memory_order_relaxed);
    atomic_store_explicit(&hungry, NULL, memory_order_relaxed);
}
