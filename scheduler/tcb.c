#include "tcb.h"

#include "arch.h"
#include "glibc.h"
#include "lock.h"
#include "real.h"
#include "symtab.h"
#include "sys.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <locale.h>
#include <netdb.h>
#include <pthread.h>
#include <resolv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

/* resolv.h has a macro for what is a member in link.h. */
#undef p_type

#if !defined(__x86_64__)
#error "the layout of the TCB is known for x86-64 only"
#endif

/* The start of glibc's tcbhead_t; part of the ABI between compilers, libgcc and libc
 * (sysdeps/x86_64/nptl/tls.h). */
struct head {
    void *tcb;
    union dtv *dtv;
    void *self;
    int multiple_threads;
    int gscope_flag;
    uintptr_t sysinfo;
    uintptr_t stack_guard;
    uintptr_t pointer_guard;
    unsigned long vgetcpu_cache[2];
    unsigned feature_1;
};

_Static_assert(offsetof(struct head, stack_guard) == 0x28, "read by code that -fstack-protector makes");
_Static_assert(offsetof(struct head, pointer_guard) == 0x30, "read by setjmp");
_Static_assert(offsetof(struct head, feature_1) == 0x48, "read by setjmp and swapcontext");

#define FEATURE_SHSTK 2u

/* glibc's dtv_t (sysdeps/generic/dl-dtv.h). [-1].counter is the length, [0].counter the generation. */
union dtv {
    size_t counter;
    struct {
        void *val;
        void *to_free;
    } pointer;
};

#define DTV_UNALLOCATED ((void *)-1L) /* NOLINT(performance-no-int-to-ptr) */

struct list {
    struct list *next;
    struct list *prev;
};

struct key_data {
    uintptr_t seq;
    void *data;
};

struct key {
    uintptr_t seq;
    void (*destr)(void *);
};

struct robust_head {
    void *list;
    long futex_offset;
    void *pending;
};

/* What this module keeps with a TCB, above struct pthread. */
struct extra {
    _Atomic uint64_t gen;    /* modules with a later `since` have not been initialised here */
    _Atomic uint64_t listed; /* equals list_epoch while on libc's list; list_lock() guards it */
} __attribute__((aligned(64)));

/* A descriptor of nptl_db: size in bits, number of elements, offset. */
struct desc {
    uint32_t bits;
    uint32_t count;
    uint32_t offset;
};

/* glibc's PTHREAD_KEY_2NDLEVEL_SIZE and _1STLEVEL_SIZE. */
#define KEYS_PER_BLOCK 32ul
#define KEY_BLOCKS     (PTHREAD_KEYS_MAX / KEYS_PER_BLOCK)

/* glibc's THREAD_STATE_JOINABLE. */
#define JOINABLE 2u

#define MAX_KEPT  12
#define MAX_LINES 24

/* Set by vt_tcb_init, constant after. */
static struct {
    void *(*allocate_tls)(void *);
    void (*deallocate_tls)(void *, bool);
    void (*ctype_init)(void);
    void (*call_tls_dtors)(void);
    /* NULL where cancelhandling has the state and the type: since 2.35. */
    int (*set_cancel_state)(int, int *);
    int (*set_cancel_type)(int, int *);
    int (*iterate_phdr)(int (*)(struct dl_phdr_info *, size_t, void *), void *);

    size_t static_size, align, size;
    size_t sizeof_pthread, above; /* struct pthread; all that lies from the thread pointer upwards */
    size_t list, tid, cancelhandling, specific, specific_used, robust;
    size_t joinstate; /* or 0: before 2.43 */
    bool has_res;
    size_t res, stackblock; /* in struct pthread; valid if has_res */
    size_t res_area;        /* of struct __res_state from the thread pointer, wherever it is */
    bool has_rseq;
    ptrdiff_t rseq;

    struct key *keys;

    /* Offsets from the thread pointer, negative, of libc's TLS variables. */
    ptrdiff_t err, h_err, resp;
    ptrdiff_t dl_result; /* or 0 if unknown */
    unsigned n_kept;
    ptrdiff_t kept[MAX_KEPT]; /* words in which libc keeps what it has allocated for a thread; see find_kept */

    /* Cache lines that each thread writes, from the thread pointer. */
    unsigned n_lines;
    short line[MAX_LINES];

    char *rtld;
    struct list **slotinfo; /* &_rtld_global._dl_tls_dtv_slotinfo_list */
    size_t slotinfo_len, slotinfo_next, slotinfo_slots, slotinfo_gen, slotinfo_map, slotinfo_size;
    size_t map_modid, map_offset;
    const size_t *rtld_gen; /* &_rtld_global._dl_tls_generation, or NULL if it was not found */

    bool has_list;
    struct list *list_head;
    uintptr_t *in_flight;
    atomic_int *list_word;
} libc;

static const char *why = "vt_tcb_init has not been called";
static _Atomic int init_state; /* 0 not yet, 1 succeeded, ENOSYS failed */
static struct vt_lock init_lock = VT_LOCK_INIT;
static _Atomic bool exec_stack; /* stays, as in glibc, when who wanted it goes */
void (*vt_tcb_exec_wanted)(void);

static struct head *head(void *tp)
{
    return tp;
}

static struct extra *extra(void *tp)
{
    return (struct extra *)((char *)tp + libc.sizeof_pthread);
}

static struct list *node(void *tp)
{
    return (struct list *)((char *)tp + libc.list);
}

static struct robust_head *robust(void *tp)
{
    return (struct robust_head *)((char *)tp + libc.robust);
}

static struct __res_state *res(void *tp)
{
    return (struct __res_state *)((char *)tp + libc.res_area);
}

static struct key_data **specific(void *tp)
{
    return (struct key_data **)((char *)tp + libc.specific);
}

/* --- modules with static TLS ---
 *
 * A list of them with copies of their images, so that nothing of a module is read when a TCB is reset, which
 * may be after its dlclose. Readers that own their TCB take it as a sequence lock does: they do their work
 * with what they find and do it again if the list has changed meanwhile. Memory of a list that has become too
 * small is never given back, so a late reader reads rubbish at worst; it checks the sequence before it writes
 * by what it has read. */

struct module {
    size_t modid;
    size_t rtld_gen; /* of its slotinfo: tells users of a modid apart */
    const void *map;
    size_t offset; /* its block begins so far below the thread pointer */
    size_t filesz, memsz;
    size_t image; /* in mods.image */
    uint64_t since;
    bool libc;
};

static struct {
    struct vt_lock lock; /* of writers */
    _Atomic uint32_t seq;
    _Atomic uint32_t n;
    struct module *_Atomic mod;
    char *_Atomic image;
    size_t cap, image_cap;
    unsigned long long adds, subs, ticket;
    _Atomic size_t rtld_gen; /* of libc when it was read */
    _Atomic uint64_t generation;
    int libc_index; /* or -1 */
} mods = {.libc_index = -1};

/* A list as it is collected under the loader's lock. */
struct scan {
    char *buf;
    size_t cap;
    struct module *mod;
    unsigned n;
    size_t image_used;
    bool overflow;
    bool exec, main_seen;
    unsigned long long adds, subs, ticket;
};

#define SCAN_MODULES(cap) ((cap) / 4 / sizeof(struct module))

static char *align_down(char *p, size_t to)
{
    return p - ((uintptr_t)p & (to - 1));
}

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) & ~(to - 1);
}

/* The link map and generation that libc has for a modid. The caller is in a dl_iterate_phdr callback; nodes
 * of the list are never freed (elf/dl-tls.c). */
static const char *slot_map(size_t modid, size_t *gen)
{
    const char *l = *(const char *const volatile *)libc.slotinfo;
    size_t i = modid;
    while (l) {
        size_t len = *(const size_t *)(l + libc.slotinfo_len);
        if (i < len) {
            const char *info = l + libc.slotinfo_slots + i * libc.slotinfo_size;
            *gen = *(const volatile size_t *)(info + libc.slotinfo_gen);
            return *(const char *const volatile *)(info + libc.slotinfo_map);
        }
        i -= len;
        l = *(const char *const volatile *)(l + libc.slotinfo_next);
    }
    return NULL;
}

static int scan_one(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct scan *s = arg;
    (void)size;
    if (!s->main_seen) {
        static unsigned long long ticket; /* guarded by the loader's lock */
        s->ticket = ++ticket;
        s->adds = info->dlpi_adds;
        s->subs = info->dlpi_subs;
    }

    const ElfW(Phdr) *tls = NULL;
    bool stack_known = false;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type == PT_TLS)
            tls = p;
        else if (p->p_type == PT_GNU_STACK) {
            stack_known = true;
            s->exec |= (p->p_flags & PF_X) != 0;
        }
    }
    /* The vdso has no such header, and nobody asked it (elf/setup-vdso.h). It has no TLS and a name with no
     * slash. */
    if (!stack_known && (!s->main_seen || (info->dlpi_name && strchr(info->dlpi_name, '/'))))
        s->exec = true;
    s->main_seen = true;

    if (!tls || info->dlpi_tls_modid == 0 || tls->p_memsz == 0)
        return 0;
    size_t gen = 0;
    const char *map = slot_map(info->dlpi_tls_modid, &gen);
    /* A module that is just being loaded or closed has no slot; l_addr is the first member of struct
     * link_map. */
    if (!map || ((const struct link_map *)map)->l_addr != info->dlpi_addr ||
        *(const size_t *)(map + libc.map_modid) != info->dlpi_tls_modid)
        return 0;
    size_t offset = *(const size_t *)(map + libc.map_offset);
    /* 0 and huge values mean no block in the static area. */
    if (offset == 0 || offset > libc.static_size || tls->p_memsz > offset)
        return 0;
    if (s->n == SCAN_MODULES(s->cap) || tls->p_filesz > s->cap - s->cap / 4 - s->image_used) {
        s->overflow = true;
        return 1;
    }
    struct module *m = &s->mod[s->n++];
    *m = (struct module){.modid = info->dlpi_tls_modid,
                         .rtld_gen = gen,
                         .map = map,
                         .offset = offset,
                         .filesz = tls->p_filesz,
                         .memsz = tls->p_memsz,
                         .image = s->image_used};
    m->libc = -libc.err <= (ptrdiff_t)offset && -libc.err > (ptrdiff_t)(offset - tls->p_memsz);
    /* NOLINTNEXTLINE(performance-no-int-to-ptr): what the loader gives is a number */
    const void *image = (const void *)(info->dlpi_addr + tls->p_vaddr);
    memcpy(s->buf + s->cap / 4 + s->image_used, image, tls->p_filesz);
    s->image_used += round_up(tls->p_filesz, 16);
    return 0;
}

static bool mods_same(const struct scan *s)
{
    const struct module *old = atomic_load_explicit(&mods.mod, memory_order_relaxed);
    if (s->n != atomic_load_explicit(&mods.n, memory_order_relaxed))
        return false;
    for (unsigned i = 0; i < s->n; i++)
        if (old[i].modid != s->mod[i].modid || old[i].rtld_gen != s->mod[i].rtld_gen || old[i].map != s->mod[i].map ||
            old[i].offset != s->mod[i].offset)
            return false;
    return true;
}

/* Takes over what a scan has found. Under mods.lock. False if there is no memory. */
static bool publish(const struct scan *s)
{
    struct module *old = atomic_load_explicit(&mods.mod, memory_order_relaxed);
    unsigned old_n = atomic_load_explicit(&mods.n, memory_order_relaxed);
    uint64_t next = atomic_load_explicit(&mods.generation, memory_order_relaxed) + 1;
    bool newer = false;
    for (unsigned i = 0; i < s->n; i++) {
        struct module *m = &s->mod[i];
        m->since = next;
        for (unsigned k = 0; k < old_n; k++)
            if (old[k].modid == m->modid && old[k].rtld_gen == m->rtld_gen && old[k].map == m->map &&
                old[k].offset == m->offset)
                m->since = old[k].since;
        newer |= m->since == next;
    }
    struct module *to = old;
    char *image = atomic_load_explicit(&mods.image, memory_order_relaxed);
    size_t cap = mods.cap, image_cap = mods.image_cap;
    if (s->n > cap) {
        cap = s->n * 2 < 64 ? 64 : s->n * 2;
        to = vt_sys_map(cap * sizeof(*to));
    }
    if (s->image_used > image_cap) {
        image_cap = round_up(s->image_used * 2, 4096);
        image = vt_sys_map(image_cap);
    }
    if ((s->n && !to) || (s->image_used && !image))
        return false;

    /* Odd while the list is not to be believed. Readers see an odd or other number if they saw any of the
     * writes. */
    uint32_t seq = atomic_load_explicit(&mods.seq, memory_order_relaxed);
    atomic_store_explicit(&mods.seq, seq + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    if (s->n)
        memcpy(to, s->mod, s->n * sizeof(*to));
    if (s->image_used)
        memcpy(image, s->buf + s->cap / 4, s->image_used);
    mods.cap = cap;
    mods.image_cap = image_cap;
    atomic_store_explicit(&mods.mod, to, memory_order_relaxed);
    atomic_store_explicit(&mods.image, image, memory_order_relaxed);
    atomic_store_explicit(&mods.n, s->n, memory_order_relaxed);
    mods.libc_index = -1;
    for (unsigned i = 0; i < s->n; i++)
        if (s->mod[i].libc)
            mods.libc_index = (int)i;
    if (newer)
        atomic_store_explicit(&mods.generation, next, memory_order_relaxed);
    /* Release: who sees this sees list and generation, which belong together. */
    atomic_store_explicit(&mods.seq, seq + 2, memory_order_release);
    return true;
}

/* Memory for scans, so that most need no system call. */
static char *_Atomic scan_buf;
#define SCAN_SIZE (64ul << 10)

/* Reads the list of modules from libc. Takes the loader's dl_load_write_lock. False if there is no memory for
 * it. */
static bool refresh(void)
{
    struct scan s = {.cap = SCAN_SIZE};
    s.buf = atomic_exchange_explicit(&scan_buf, NULL, memory_order_acquire);
    /* Before the scan: what is loaded during it changes the number again, and is looked at once more. */
    size_t rtld_gen = libc.rtld_gen ? *(const volatile size_t *)libc.rtld_gen : 0;
    for (;;) {
        if (!s.buf)
            s.buf = vt_sys_map(s.cap);
        if (!s.buf)
            return false;
        s.mod = (struct module *)s.buf;
        s.n = 0;
        s.image_used = 0;
        s.overflow = s.exec = s.main_seen = false;
        libc.iterate_phdr(scan_one, &s);
        if (!s.overflow)
            break;
        vt_sys2(SYS_munmap, (long)s.buf, (long)s.cap);
        s.buf = NULL;
        s.cap *= 4;
    }
    bool ok = true, wanted = false;
    vt_lock(&mods.lock);
    /* An older scan than the published one changes nothing: whoever needs a newer one will see that it is
     * stale. */
    if (s.ticket > mods.ticket) {
        if (!mods_same(&s))
            ok = publish(&s);
        if (ok) {
            mods.ticket = s.ticket;
            mods.adds = s.adds;
            mods.subs = s.subs;
            wanted = s.exec && !atomic_exchange_explicit(&exec_stack, true, memory_order_seq_cst);
            atomic_store_explicit(&mods.rtld_gen, rtld_gen, memory_order_release);
        }
    }
    vt_unlock(&mods.lock);
    if (wanted && vt_tcb_exec_wanted)
        vt_tcb_exec_wanted();
    char *none = NULL;
    if (s.cap != SCAN_SIZE ||
        !atomic_compare_exchange_strong_explicit(&scan_buf, &none, s.buf, memory_order_release, memory_order_relaxed))
        vt_sys2(SYS_munmap, (long)s.buf, (long)s.cap);
    return ok;
}

static int read_adds(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct scan *s = arg;
    (void)size;
    s->adds = info->dlpi_adds;
    s->subs = info->dlpi_subs;
    return 1;
}

static bool stale(void)
{
    if (libc.rtld_gen)
        return *(const volatile size_t *)libc.rtld_gen != atomic_load_explicit(&mods.rtld_gen, memory_order_acquire);
    struct scan s = {0};
    libc.iterate_phdr(read_adds, &s);
    vt_lock(&mods.lock);
    bool changed = s.adds != mods.adds || s.subs != mods.subs;
    vt_unlock(&mods.lock);
    return changed;
}

void vt_tcb_module_comes(void)
{
    atomic_store_explicit(&mods.rtld_gen, SIZE_MAX, memory_order_relaxed);
}

void vt_tcb_module_came(void)
{
    struct scan s = {0};
    libc.iterate_phdr(read_adds, &s);
    vt_lock(&mods.lock);
    bool more = s.adds != mods.adds;
    vt_unlock(&mods.lock);
    if (more)
        refresh();
}

static inline void sync_modules(void)
{
    if (__builtin_expect(stale(), 0))
        refresh();
}

/* An image and zeros behind it. Most are a few words: shorter than the set-up of `rep movs`. */
static inline void fill(char *to, const char *image, size_t filesz, size_t memsz)
{
    memcpy(to, image, filesz);
    memset(to + filesz, 0, memsz - filesz);
}

/* Initialises the blocks of all modules that came after generation `after`. The caller alone uses the TCB.
 * Returns the generation that it then has. */
static uint64_t init_blocks(char *tp, uint64_t after, bool keep)
{
    void *kept[MAX_KEPT];
    for (unsigned i = 0; i < libc.n_kept; i++)
        kept[i] = *(void **)(tp + libc.kept[i]);
again:;
    uint32_t seq = atomic_load_explicit(&mods.seq, memory_order_acquire);
    if (seq & 1) {
        vt_cpu_relax();
        goto again;
    }
    uint64_t generation = atomic_load_explicit(&mods.generation, memory_order_acquire);
    unsigned n = atomic_load_explicit(&mods.n, memory_order_relaxed);
    const struct module *mod = atomic_load_explicit(&mods.mod, memory_order_relaxed);
    const char *image = atomic_load_explicit(&mods.image, memory_order_relaxed);
    for (unsigned i = 0; i < n; i++) {
        atomic_thread_fence(memory_order_acquire);
        if (atomic_load_explicit(&mods.seq, memory_order_relaxed) != seq)
            goto again;
        struct module m = *(const volatile struct module *)&mod[i];
        /* What was read is good if the sequence is still the same; only then write by it. */
        atomic_thread_fence(memory_order_acquire);
        if (atomic_load_explicit(&mods.seq, memory_order_relaxed) != seq)
            goto again;
        if (m.since > after)
            fill(tp - m.offset, image + m.image, m.filesz, m.memsz);
    }
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(&mods.seq, memory_order_relaxed) != seq)
        goto again;
    if (keep)
        for (unsigned i = 0; i < libc.n_kept; i++)
            *(void **)(tp + libc.kept[i]) = kept[i];
    return generation;
}

/* --- libc's list of threads with caller's stacks ---
 *
 * Guarded by _dl_stack_cache_lock, a low-level lock of libc: 0 free, 1 held, 2 held and awaited by futex. */

static uint64_t list_epoch = 1;      /* another one after fork, when all nodes but one are stale; under list_lock() */
static unsigned list_depth;          /* dlopens and dlcloses in progress; under list_lock() */
static _Atomic unsigned list_wanted; /* the same, to be looked at without the lock */

static void list_lock(void)
{
    int expected = 0;
    if (atomic_compare_exchange_strong_explicit(libc.list_word, &expected, 1, memory_order_acquire, memory_order_relaxed))
        return;
    while (atomic_exchange_explicit(libc.list_word, 2, memory_order_acquire) != 0)
        vt_sys4(SYS_futex, (long)libc.list_word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 2, 0);
}

static void list_unlock(void)
{
    if (atomic_exchange_explicit(libc.list_word, 0, memory_order_release) > 1)
        vt_sys_futex_wake(libc.list_word, 1);
}

/* Under list_lock(). Says in _dl_in_flight_stack what is being done, so that fork in another thread can mend
 * the list in the child (nptl/nptl-stack.c). */
static void unlink_locked(void *tp)
{
    struct list *n = node(tp);
    if (atomic_load_explicit(&extra(tp)->listed, memory_order_relaxed) == list_epoch) {
        *(volatile uintptr_t *)libc.in_flight = (uintptr_t)n;
        atomic_signal_fence(memory_order_seq_cst);
        n->next->prev = n->prev;
        n->prev->next = n->next;
        atomic_signal_fence(memory_order_seq_cst);
        *(volatile uintptr_t *)libc.in_flight = 0;
    }
    n->next = n->prev = n;
    atomic_store_explicit(&extra(tp)->listed, 0, memory_order_relaxed);
}

static void link_locked(void *tp)
{
    struct list *n = node(tp);
    if (atomic_load_explicit(&extra(tp)->listed, memory_order_relaxed) == list_epoch)
        return;
    *(volatile uintptr_t *)libc.in_flight = (uintptr_t)n | 1;
    atomic_signal_fence(memory_order_seq_cst);
    n->next = libc.list_head->next;
    n->prev = libc.list_head;
    libc.list_head->next->prev = n;
    libc.list_head->next = n;
    atomic_signal_fence(memory_order_seq_cst);
    *(volatile uintptr_t *)libc.in_flight = 0;
    atomic_store_explicit(&extra(tp)->listed, list_epoch, memory_order_relaxed);
}

/* A TCB that is in nobody's use must not be on the list. */
static inline void unlist(void *tp)
{
    if (__builtin_expect(atomic_load_explicit(&extra(tp)->listed, memory_order_relaxed) != 0, 0)) {
        list_lock();
        unlink_locked(tp);
        list_unlock();
    }
}

/* A TCB that is ready for use must be on the list while somebody wants that. */
static inline void list_new(void *tp)
{
    if (__builtin_expect(atomic_load_explicit(&list_wanted, memory_order_relaxed) == 0, 1))
        return;
    list_lock();
    bool on = list_depth != 0;
    if (on)
        link_locked(tp);
    list_unlock();
    /* What was loaded before we were on the list shows in libc's generation, which is counted before libc
     * walks the list; what comes later, libc has initialised, and nothing has been done with it yet. */
    if (on && stale()) {
        refresh();
        uint64_t after = atomic_load_explicit(&extra(tp)->gen, memory_order_relaxed);
        atomic_store_explicit(&extra(tp)->gen, init_blocks(tp, after, true), memory_order_relaxed);
    }
}

bool vt_tcb_dl_begin(void)
{
    if (!libc.has_list)
        return false;
    list_lock();
    list_depth++;
    atomic_store_explicit(&list_wanted, list_depth, memory_order_relaxed);
    list_unlock();
    return true;
}

int vt_tcb_list(void *tp)
{
    if (!libc.has_list)
        return ENOSYS;
    vt_tcb_late_tls(tp);
    list_lock();
    if (list_depth)
        link_locked(tp);
    list_unlock();
    if (stale())
        vt_tcb_late_tls(tp);
    return 0;
}

void vt_tcb_dl_end(bool begun)
{
    /* Always: an old module may have got static TLS for the sake of a new one that has none itself. */
    refresh();
    if (!begun)
        return;
    uint64_t generation = atomic_load_explicit(&mods.generation, memory_order_acquire);
    list_lock();
    if (list_depth)
        list_depth--;
    atomic_store_explicit(&list_wanted, list_depth, memory_order_relaxed);
    for (struct list *n = libc.list_head->next, *next; n != libc.list_head; n = next) {
        next = n->next;
        char *tp = (char *)n - libc.list;
        if (vt_tcb_tid(tp) < VT_TCB_TID_MIN)
            continue;
        /* libc has initialised here what is new. */
        if (atomic_load_explicit(&extra(tp)->gen, memory_order_relaxed) < generation)
            atomic_store_explicit(&extra(tp)->gen, generation, memory_order_relaxed);
        if (list_depth == 0)
            unlink_locked(tp);
    }
    list_unlock();
}

bool vt_tcb_list_self(bool on)
{
    if (!on) {
        vt_tcb_dl_end(libc.has_list);
        return true;
    }
    if (!vt_tcb_dl_begin())
        return false;
    void *tp = vt_arch_tp();
    if (vt_tcb_tid(tp) >= VT_TCB_TID_MIN)
        vt_tcb_list(tp);
    return true;
}

uint64_t vt_tcb_generation(void)
{
    sync_modules();
    return atomic_load_explicit(&mods.generation, memory_order_acquire);
}

void vt_tcb_late_tls(void *tp)
{
    sync_modules();
    if (atomic_load_explicit(&extra(tp)->gen, memory_order_acquire) >=
        atomic_load_explicit(&mods.generation, memory_order_acquire))
        return;
    /* The thread may run: every block once, so with the list held still. */
    vt_lock(&mods.lock);
    uint64_t after = atomic_load_explicit(&extra(tp)->gen, memory_order_relaxed);
    const struct module *mod = atomic_load_explicit(&mods.mod, memory_order_relaxed);
    const char *image = atomic_load_explicit(&mods.image, memory_order_relaxed);
    unsigned n = atomic_load_explicit(&mods.n, memory_order_relaxed);
    for (unsigned i = 0; i < n; i++)
        if (mod[i].since > after)
            fill((char *)tp - mod[i].offset, image + mod[i].image, mod[i].filesz, mod[i].memsz);
    /* Release: whoever sees the number sees the blocks. */
    atomic_store_explicit(&extra(tp)->gen, atomic_load_explicit(&mods.generation, memory_order_relaxed), memory_order_release);
    vt_unlock(&mods.lock);
}

/* --- what libc keeps for a thread ---
 *
 * glibc has no way to give back a tcache, or the state of the vDSO's getrandom, but the end of a kernel
 * thread. So those of a TCB that goes wait here for the next one that is made. So does the dtv where free
 * must not be called. */

struct stash {
    union dtv *dtv; /* or NULL */
    void *word[MAX_KEPT];
};

struct stash_chunk {
    struct stash_chunk *next;
    size_t n;
    struct stash item[];
};

#define STASH_CHUNK 16384ul
#define STASH_ITEMS ((STASH_CHUNK - sizeof(struct stash_chunk)) / sizeof(struct stash))

static struct {
    struct vt_lock lock;
    struct stash_chunk *top, *full; /* the one in use, or NULL; those that are full */
    _Atomic size_t n;
} stash;

static void stash_put(const char *tp, union dtv *dtv)
{
    if (!libc.n_kept && !dtv)
        return;
    vt_lock(&stash.lock);
    struct stash_chunk *c = stash.top;
    if (!c || c->n == STASH_ITEMS) {
        if (c) {
            c->next = stash.full;
            stash.full = c;
        }
        /* Without memory for it, what the TCB had is lost. */
        c = stash.top = vt_sys_map(STASH_CHUNK);
    }
    if (c) {
        struct stash *item = &c->item[c->n++];
        item->dtv = dtv;
        for (unsigned i = 0; i < libc.n_kept; i++)
            item->word[i] = *(void *const *)(tp + libc.kept[i]);
        atomic_fetch_add_explicit(&stash.n, 1, memory_order_relaxed);
    }
    vt_unlock(&stash.lock);
}

static bool stash_get(struct stash *out)
{
    if (atomic_load_explicit(&stash.n, memory_order_relaxed) == 0)
        return false;
    struct stash_chunk *empty = NULL;
    bool got = false;
    vt_lock(&stash.lock);
    if ((!stash.top || stash.top->n == 0) && stash.full) {
        empty = stash.top;
        stash.top = stash.full;
        stash.full = stash.full->next;
    }
    if (stash.top && stash.top->n) {
        *out = stash.top->item[--stash.top->n];
        atomic_fetch_sub_explicit(&stash.n, 1, memory_order_relaxed);
        got = true;
    }
    vt_unlock(&stash.lock);
    if (empty)
        vt_sys2(SYS_munmap, (long)empty, (long)STASH_CHUNK);
    return got;
}

/* --- TCBs --- */

size_t vt_tcb_size(void)
{
    return libc.size;
}

size_t vt_tcb_align(void)
{
    return libc.align;
}

bool vt_tcb_exec_stack(void)
{
    return atomic_load_explicit(&exec_stack, memory_order_seq_cst);
}

/* Fields that every new thread finds the same, in memory that is zero or from an earlier thread. */
static void set_fields(char *tp, unsigned tid)
{
    struct robust_head *r = robust(tp);
    r->list = r;
    r->pending = NULL;
    *((void **)r - 1) = r; /* robust_prev */
    /* cleanup and cleanup_jmp_buf lie between the robust list's head and cancelhandling; see vt_tcb_init. */
    void **cleanup = (void **)(tp + libc.cancelhandling);
    cleanup[-2] = cleanup[-1] = NULL;
    atomic_store_explicit(vt_tcb_cancelhandling(tp), 0, memory_order_relaxed);
    *(char *)(tp + libc.specific_used) = 0;
    *(void **)(tp + libc.resp) = res(tp);
    if (libc.joinstate)
        *(volatile unsigned *)(tp + libc.joinstate) = JOINABLE;
    vt_tcb_set_tid(tp, tid);
}

static int make(void *top, unsigned tid, void **out, bool use_stash)
{
    char *tp = align_down((char *)top - libc.above, libc.align);
    memset(tp, 0, libc.above);

    const struct head *self = vt_arch_tp();
    struct head *h = head(tp);
    h->tcb = h->self = tp;
    h->multiple_threads = 1;
    h->stack_guard = self->stack_guard;
    h->pointer_guard = self->pointer_guard;
    h->feature_1 = self->feature_1;
    specific(tp)[0] = (struct key_data *)specific(tp) - KEYS_PER_BLOCK;
    node(tp)->next = node(tp)->prev = node(tp);

    int saved = errno;
    struct stash old;
    bool inherits = use_stash && stash_get(&old);
    if (inherits && old.dtv) {
        h->dtv = old.dtv;
        libc.deallocate_tls(tp, false);
    }
    sync_modules();
    uint64_t gen = atomic_load_explicit(&mods.generation, memory_order_acquire);
    void *got = libc.allocate_tls(tp);
    errno = saved;
    if (!got)
        return ENOMEM;
    if (stale())
        refresh();
    if (gen != atomic_load_explicit(&mods.generation, memory_order_acquire))
        gen = init_blocks(tp, gen, false);
    atomic_store_explicit(&extra(tp)->gen, gen, memory_order_relaxed);

    if (inherits)
        for (unsigned i = 0; i < libc.n_kept; i++)
            *(void **)(tp + libc.kept[i]) = old.word[i];
    if (libc.has_rseq) {
        /* struct rseq begins with cpu_id_start and cpu_id; -2 is RSEQ_CPU_ID_REGISTRATION_FAILED. 32 bytes is
         * the first version of the structure, of which there is never less (__rseq_offset(3), glibc manual).
         */
        memset(tp + libc.rseq, 0, 32);
        ((int *)(tp + libc.rseq))[1] = -2;
    }
    robust(tp)->futex_offset =
        (long)offsetof(pthread_mutex_t, __data.__lock) - (long)offsetof(pthread_mutex_t, __data.__list.__next);
    set_fields(tp, tid);
    list_new(tp);
    *out = tp;
    return 0;
}

int vt_tcb_make(void *top, unsigned tid, void **tp)
{
    return make(top, tid, tp, true);
}

void vt_tcb_reset(void *tp, unsigned tid)
{
    unlist(tp);
    union dtv *dtv = head(tp)->dtv;
    size_t len = dtv[-1].counter;
    for (size_t i = 1; i <= len; i++)
        if (dtv[i].pointer.to_free) {
            free(dtv[i].pointer.to_free);
            /* The entry is as new for its generation; if that is old by now, __tls_get_addr brings it up to
             * date. */
            dtv[i].pointer.to_free = NULL;
            dtv[i].pointer.val = DTV_UNALLOCATED;
        }
    sync_modules();
    atomic_store_explicit(&extra(tp)->gen, init_blocks(tp, 0, true), memory_order_relaxed);
    set_fields(tp, tid);
    list_new(tp);
}

void vt_tcb_prefetch(const void *tp)
{
    for (unsigned i = 0; i < libc.n_lines; i++)
        __builtin_prefetch((const char *)tp + libc.line[i], 1);
}

void vt_tcb_prefetch_dtv(const void *tp)
{
    const union dtv *dtv = ((const struct head *)tp)->dtv;
    __builtin_prefetch(dtv - 1);
    __builtin_prefetch(dtv + 2);
}

int vt_tcb_renew(void *tp, unsigned tid)
{
    unlist(tp);
    libc.deallocate_tls(tp, false);
    void *again;
    return make((char *)tp + libc.above, tid, &again, true);
}

void vt_tcb_free(void *tp)
{
    unlist(tp);
    stash_put(tp, NULL);
    libc.deallocate_tls(tp, false);
    head(tp)->dtv = NULL;
}

void vt_tcb_drop(void *tp)
{
    unlist(tp);
    stash_put(tp, head(tp)->dtv);
    head(tp)->dtv = NULL;
}

void vt_tcb_set_stack(void *tp, char *lo, char *hi, size_t guard_size)
{
    if (!libc.has_res)
        return;
    /* stackblock, stackblock_size, guardsize, reported_guardsize (nptl/descr.h): the block includes the
     * guard. */
    uintptr_t *f = (uintptr_t *)((char *)tp + libc.stackblock);
    f[0] = (uintptr_t)lo - guard_size;
    f[1] = (uintptr_t)hi - f[0];
    f[2] = f[3] = guard_size;
}

void vt_tcb_enter(void)
{
    libc.ctype_init();
    if (libc.set_cancel_state) {
        libc.set_cancel_type(PTHREAD_CANCEL_DEFERRED, NULL);
        libc.set_cancel_state(PTHREAD_CANCEL_ENABLE, NULL);
    }
}

atomic_int *vt_tcb_cancelhandling(void *tp)
{
    return (atomic_int *)((char *)tp + libc.cancelhandling);
}

bool vt_tcb_cancelled(void *tp)
{
    return libc.cancelhandling && (atomic_load(vt_tcb_cancelhandling(tp)) & VT_TCB_CANCELED);
}

void **vt_tcb_cleanup_jmp_buf(void *tp)
{
    return (void **)((char *)tp + libc.cancelhandling) - 1;
}

void vt_tcb_set_tid(void *tp, unsigned tid)
{
    *(volatile unsigned *)((char *)tp + libc.tid) = tid;
}

unsigned vt_tcb_tid(void *tp)
{
    return *(volatile unsigned *)((char *)tp + libc.tid);
}

/* In the order of nptl/nptl_deallocate_tsd.c. */
static void key_destructors(char *tp)
{
    volatile char *used = tp + libc.specific_used;
    if (!*used)
        return;
    struct key_data **block = specific(tp);
    for (int round = 0; round < _POSIX_THREAD_DESTRUCTOR_ITERATIONS && *used; round++) {
        *used = 0;
        for (unsigned b = 0; b < KEY_BLOCKS; b++) {
            struct key_data *level2 = block[b];
            if (!level2)
                continue;
            for (unsigned i = 0; i < KEYS_PER_BLOCK; i++) {
                void *data = level2[i].data;
                if (!data)
                    continue;
                level2[i].data = NULL;
                /* A key that was deleted since, and perhaps made again, has another sequence number. */
                const volatile struct key *k = &libc.keys[b * KEYS_PER_BLOCK + i];
                void (*destr)(void *) = k->destr;
                if (level2[i].seq == k->seq && destr)
                    destr(data);
            }
        }
    }
    memset(block[0], 0, KEYS_PER_BLOCK * sizeof(struct key_data));
    for (unsigned b = 1; b < KEY_BLOCKS; b++)
        if (block[b]) {
            free(block[b]);
            block[b] = NULL;
        }
    *used = 0;
}

void vt_tcb_leave(void)
{
    char *tp = vt_arch_tp();
    libc.call_tls_dtors();
    key_destructors(tp);

    /* As __res_thread_freeres does; all zero is what the next thread starts with. */
    struct __res_state *r = res(tp);
    if (r->nscount != 0) {
        vt_real(__res_nclose)(r);
        memset(r, 0, sizeof(*r));
    }
    /* A success frees the text of an earlier error and makes none. dlerror would: it may call malloc, and
     * after its key destructor another allocator would make a cache for this thread once more. In libdl it is under a key. */
    if (!VT_OLD_GLIBC && (libc.dl_result == 0 || *(void **)(tp + libc.dl_result)))
        (void)vt_dlsym(RTLD_DEFAULT, "malloc");
    uselocale(LC_GLOBAL_LOCALE);
}

void vt_tcb_fork_child(void)
{
    /* Who held a lock is not here. What it was changing is made anew. */
    if (vt_lock_held(&mods.lock)) {
        mods.cap = mods.image_cap = 0;
        mods.ticket = 0;
        mods.adds = mods.subs = 0;
        mods.libc_index = -1;
        atomic_store_explicit(&mods.n, 0, memory_order_relaxed);
        atomic_store_explicit(&mods.rtld_gen, (size_t)-1, memory_order_relaxed);
        atomic_store_explicit(&mods.seq, (atomic_load_explicit(&mods.seq, memory_order_relaxed) | 1) + 1, memory_order_relaxed);
    }
    mods.lock = (struct vt_lock)VT_LOCK_INIT;
    if (vt_lock_held(&stash.lock)) {
        stash.top = stash.full = NULL;
        atomic_store_explicit(&stash.n, 0, memory_order_relaxed);
    }
    stash.lock = (struct vt_lock)VT_LOCK_INIT;
    init_lock = (struct vt_lock)VT_LOCK_INIT;
    /* libc's fork has emptied its list but for the calling thread. */
    list_epoch++;
    list_depth = 0;
    atomic_store_explicit(&list_wanted, 0, memory_order_relaxed);
}

/* In the child the kernel still writes the processor's number to where the kernel thread of the parent wanted
 * it, and libc takes that memory for free. */
static void unregister_rseq(char *tp)
{
    /* The lengths that libc registers: the first version's, then what the kernel says it knows. */
    unsigned size = (unsigned)getauxval(27 /* AT_RSEQ_FEATURE_SIZE */), lengths[] = {32, size, (size + 31) & ~31u};
    if (!libc.has_rseq || ((int *)(tp + libc.rseq))[1] < 0) /* cpu_id: not registered */
        return;
    for (unsigned i = 0; i < 3; i++)
        if (vt_sys4(SYS_rseq, (long)(tp + libc.rseq), lengths[i], 1 /* RSEQ_FLAG_UNREGISTER */, 0x53053053) == 0)
            return;
}

void vt_tcb_forked(void *tp, unsigned tid, void *kernel_tp)
{
    if (kernel_tp)
        unregister_rseq(kernel_tp);
    vt_tcb_set_tid(tp, tid);
    /* Where libc has put it on its list, as if it were a kernel thread's, it need not be put. */
    atomic_store_explicit(&extra(tp)->listed, node(tp)->next != node(tp) ? list_epoch : 0, memory_order_relaxed);
}

void vt_tcb_replace(void *tp, void *by)
{
    if (libc.has_list) {
        list_lock();
        unlink_locked(tp);
        link_locked(by);
        list_unlock();
    }
    /* libc has looked after its blocks as long as it was there. */
    sync_modules();
    atomic_store_explicit(&extra(tp)->gen, atomic_load_explicit(&mods.generation, memory_order_acquire), memory_order_release);
    vt_sys2(SYS_set_robust_list, (long)robust(by), sizeof(struct robust_head));
    vt_sys1(SYS_set_tid_address, (long)((char *)by + (libc.joinstate ? libc.joinstate : libc.tid)));
}

/* --- finding out --- */

static struct vt_symtab symtab; /* open while libc is looked at */

static void *find(const char *name)
{
    /* Behind us first: what the program itself may define with such a name is not libc's. */
    void *p = vt_dlsym(RTLD_NEXT, name);
    if (!p)
        p = vt_symtab_find(&symtab, name);
    return p ? p : vt_dlsym(RTLD_DEFAULT, name);
}

static bool refuse(const char *text)
{
    why = text;
    return false;
}

static bool find_desc(const char *name, struct desc *d)
{
    const struct desc *p = find(name);
    if (!p)
        return false;
    *d = *p;
    return true;
}

/* The offset of a field of `bits` bits. */
static bool find_field(const char *name, uint32_t bits, size_t *offset)
{
    struct desc d;
    if (!find_desc(name, &d) || d.bits != bits)
        return false;
    *offset = d.offset;
    return true;
}

/* Since 2.43 the word that the kernel clears at a thread's end is no longer `tid` but `joinstate` (nptl/descr.h), and
 * pthread_cancel goes by that. It lies where the pointer `joinid` was, two words before the scheduling parameters, and a living
 * thread has 1 to 3 there, which is no pointer. The kernel may be able to say which word it is; in a process that came by fork
 * it is `tid` anyway, or none. */
static bool find_joinstate(void)
{
    size_t param;
    char *tp = vt_arch_tp();
    char *cleared = NULL;
    unsigned minor = 0;
    const char *(*version)(void);
    *(void **)&version = find("gnu_get_libc_version");
    if (version)
        sscanf(version(), "2.%u", &minor);
    libc.joinstate = 0;
    if (find_field("_thread_db_pthread_schedparam_sched_priority", 32, &param) && param % 8 == 0 &&
        param >= libc.specific_used + 24) {
        const uint64_t state = *(const volatile uint64_t *)(tp + param - 16);
        if (state >= 1 && state <= 3)
            libc.joinstate = param - 16;
    }
    if (vt_sys2(SYS_prctl, 40 /* PR_GET_TID_ADDRESS */, (long)&cleared) == 0 && cleared >= tp &&
        cleared < tp + libc.sizeof_pthread && cleared != tp + libc.tid && (!libc.joinstate || cleared != tp + libc.joinstate))
        return false;
    return libc.joinstate || minor < 43;
}

static bool find_functions(void)
{
    *(void **)&libc.allocate_tls = find("_dl_allocate_tls");
    *(void **)&libc.deallocate_tls = find("_dl_deallocate_tls");
    *(void **)&libc.ctype_init = find("__ctype_init");
    *(void **)&libc.call_tls_dtors = find("__call_tls_dtors");
    *(void **)&libc.iterate_phdr = find("dl_iterate_phdr");
    libc.keys = find("__pthread_keys");
    void (*static_info)(size_t *, size_t *);
    *(void **)&static_info = find("_dl_get_tls_static_info");
    libc.rtld = find("_rtld_global");
    if (!libc.allocate_tls || !libc.deallocate_tls || !libc.ctype_init || !libc.call_tls_dtors || !libc.iterate_phdr ||
        !libc.keys || !static_info || !libc.rtld)
        return refuse("the C library is not glibc " VT_GLIBC_TEXT);
    static_info(&libc.static_size, &libc.align);
    if (libc.align < 64)
        libc.align = 64;
    return true;
}

static bool find_fields(void)
{
    static const char unknown[] = "the C library's thread descriptor has an unknown layout";
    const uint32_t *size = find("_thread_db_sizeof_pthread");
    struct desc spec, keys, level2, dtv;
    size_t dtvp, val, counter, next, prev, seq, data, key_seq, key_destr, policy;
    if (!size || !find_field("_thread_db_pthread_list", 128, &libc.list) ||
        !find_field("_thread_db_pthread_tid", 32, &libc.tid) ||
        !find_field("_thread_db_pthread_cancelhandling", 32, &libc.cancelhandling) ||
        !find_field("_thread_db_pthread_dtvp", 64, &dtvp) || !find_field("_thread_db_dtv_t_pointer_val", 64, &val) ||
        !find_field("_thread_db_dtv_t_counter", 64, &counter) || !find_field("_thread_db_list_t_next", 64, &next) ||
        !find_field("_thread_db_list_t_prev", 64, &prev) || !find_field("_thread_db_pthread_key_data_seq", 64, &seq) ||
        !find_field("_thread_db_pthread_key_data_data", 64, &data) ||
        !find_field("_thread_db_pthread_key_struct_seq", 64, &key_seq) ||
        !find_field("_thread_db_pthread_key_struct_destr", 64, &key_destr) ||
        !find_field("_thread_db_pthread_schedpolicy", 32, &policy) || !find_desc("_thread_db_pthread_specific", &spec) ||
        !find_desc("_thread_db___pthread_keys", &keys) || !find_desc("_thread_db_pthread_key_data_level2_data", &level2) ||
        !find_desc("_thread_db_dtv_dtv", &dtv))
        return refuse(unknown);
    libc.sizeof_pthread = *size;
    libc.specific = spec.offset;
    if (dtvp != offsetof(struct head, dtv) || val != 0 || counter != 0 || dtv.bits != 8 * sizeof(union dtv) || next != 0 ||
        prev != sizeof(void *) || seq != 0 || data != offsetof(struct key_data, data) ||
        level2.bits != 8 * sizeof(struct key_data) || level2.count != KEYS_PER_BLOCK || keys.bits != 8 * sizeof(struct key) ||
        keys.count != PTHREAD_KEYS_MAX || key_seq != 0 || key_destr != offsetof(struct key, destr) ||
        (size_t)spec.bits * spec.count != 64 * KEY_BLOCKS || libc.sizeof_pthread % 64 != 0 ||
        libc.sizeof_pthread < libc.specific + 8 * KEY_BLOCKS || libc.static_size < libc.sizeof_pthread)
        return refuse(unknown);

    /* The calling thread's own descriptor must look as we think. */
    char *tp = vt_arch_tp();
    if (head(tp)->self != tp || vt_tcb_tid(tp) == 0 || vt_tcb_tid(tp) >= VT_TCB_TID_MIN ||
        specific(tp)[0] != (struct key_data *)specific(tp) - KEYS_PER_BLOCK)
        return refuse(unknown);
    /* specific_used is the byte behind the array and in front of report_events. */
    size_t report;
    if (!find_field("_thread_db_pthread_report_events", 8, &report) || report != libc.specific + 8 * KEY_BLOCKS + 1)
        return refuse(unknown);
    libc.specific_used = report - 1;
    if (!find_joinstate())
        return refuse(unknown);

    /* tid, (an int,) robust_prev, robust_head, cleanup, cleanup_jmp_buf, cancelhandling. */
    void *rhead = NULL;
    size_t rlen = 0;
    libc.robust = libc.cancelhandling - 2 * sizeof(void *) - sizeof(struct robust_head);
    if (vt_sys3(SYS_get_robust_list, 0, (long)&rhead, (long)&rlen) == 0 && rhead && (char *)rhead != tp + libc.robust)
        return refuse(unknown);
    if (libc.robust != ((libc.tid + sizeof(int) + 7) & ~(size_t)7) + sizeof(void *))
        return refuse(unknown);

    if (head(tp)->feature_1 & FEATURE_SHSTK)
        return refuse("the process uses shadow stacks");

    const ptrdiff_t *rseq = find("__rseq_offset");
    libc.has_rseq = rseq != NULL;
    if (!rseq) {
        /* That symbol came with 2.35, as did cancellation's state and type in one word with the rest. */
        *(void **)&libc.set_cancel_state = find("pthread_setcancelstate");
        *(void **)&libc.set_cancel_type = find("pthread_setcanceltype");
        if (!libc.set_cancel_state || !libc.set_cancel_type)
            return refuse(unknown);
    } else {
        libc.rseq = *rseq;
        if (libc.rseq > (ptrdiff_t)libc.sizeof_pthread - 32 || libc.rseq < -(ptrdiff_t)(libc.static_size - libc.sizeof_pthread))
            return refuse(unknown);
    }
    return true;
}

/* struct __res_state in struct pthread, and the stack's bounds before it. Only checked guesses: without them
 * the state lies elsewhere, and libc does not know the stack's bounds. */
static void find_res(void)
{
    char *tp = vt_arch_tp();
    size_t event;
    char *r = (char *)__res_state();
    if (find_field("_thread_db_pthread_nextevent", 64, &event)) {
        /* nextevent, struct _Unwind_Exception (32 bytes, aligned to 16), stackblock, stackblock_size,
         * guardsize, reported_guardsize, tpp, res (nptl/descr.h, 2.34 to 2.42). */
        libc.stackblock = round_up(event + 8, 16) + 32;
        libc.res = libc.stackblock + 5 * sizeof(void *);
        const uintptr_t *f = (const uintptr_t *)(tp + libc.stackblock);
        void *const *end = find("__libc_stack_end");
        uintptr_t sp = (uintptr_t)__builtin_frame_address(0);
        if (libc.res + sizeof(struct __res_state) > libc.sizeof_pthread)
            libc.has_res = false;
        else if (r == tp + libc.res) /* a thread that pthread_create made */
            libc.has_res = sp > f[0] && sp < f[0] + f[1];
        else /* the main thread: the "block" reaches from 0 to the end of its stack
                (sysdeps/nptl/dl-tls_init_tp.c) */
            libc.has_res = end && f[0] == 0 && f[1] != 0 && f[1] == (uintptr_t)*end;
    }
    libc.above = libc.sizeof_pthread + sizeof(struct extra);
    libc.res_area = libc.res;
    if (!libc.has_res) {
        libc.res_area = libc.above;
        libc.above += round_up(sizeof(struct __res_state), 64);
    }
    libc.size = round_up(libc.static_size - libc.sizeof_pthread, 64) + libc.above + (libc.align > 64 ? libc.align : 0);
}

static bool find_variables(void)
{
    char *tp = vt_arch_tp();
    libc.err = (char *)__errno_location() - tp;
    libc.h_err = (char *)__h_errno_location() - tp;
    char *resp = find("__resp");
    if (!resp)
        return refuse("the C library does not export __resp");
    if (*(void **)resp != __res_state())
        return refuse("the C library's resolver state is elsewhere");
    libc.resp = resp - tp;
    ptrdiff_t low = -(ptrdiff_t)libc.static_size;
    if (libc.err >= 0 || libc.err < low || libc.h_err >= 0 || libc.h_err < low || libc.resp >= 0 || libc.resp < low)
        return refuse("the C library's variables are not in static TLS");
    return true;
}

static bool find_modules(void)
{
    static const char unknown[] = "the C library's list of modules has an unknown layout";
    struct desc list, len, next, slots, gen, map;
    const uint32_t *size = find("_thread_db_sizeof_dtv_slotinfo");
    if (!size || !find_desc("_thread_db_rtld_global__dl_tls_dtv_slotinfo_list", &list) ||
        !find_desc("_thread_db_dtv_slotinfo_list_len", &len) || !find_desc("_thread_db_dtv_slotinfo_list_next", &next) ||
        !find_desc("_thread_db_dtv_slotinfo_list_slotinfo", &slots) || !find_desc("_thread_db_dtv_slotinfo_gen", &gen) ||
        !find_desc("_thread_db_dtv_slotinfo_map", &map) ||
        !find_field("_thread_db_link_map_l_tls_modid", 64, &libc.map_modid) ||
        !find_field("_thread_db_link_map_l_tls_offset", 64, &libc.map_offset))
        return refuse(unknown);
    libc.slotinfo = (struct list **)(libc.rtld + list.offset);
    libc.slotinfo_size = *size;
    libc.slotinfo_len = len.offset;
    libc.slotinfo_next = next.offset;
    libc.slotinfo_slots = slots.offset;
    libc.slotinfo_gen = gen.offset;
    libc.slotinfo_map = map.offset;

    /* Behind the list in struct rtld_global: _dl_tls_static_nelem, _static_used, _static_optional,
     * _dl_initial_dtv, _dl_tls_generation, _dl_scope_free_list, _dl_stack_used, _dl_stack_user
     * (sysdeps/generic/ldsodefs.h, 2.34 to 2.42); in 2.31 _dl_tls_static_nelem, _static_size, _static_used, _static_align,
     * (_static_optional, in Debian's and others that took it over from 2.32,) _dl_initial_dtv, _dl_tls_generation,
     * _dl_init_static_tls. The distance, and that function, tell whether that is so here. */
    struct desc used, user;
    const size_t *f = (const size_t *)(libc.rtld + list.offset);
    const size_t in_use = VT_OLD_GLIBC ? 3 : 2;
    size_t generation = 5;
    bool known;
    if (VT_OLD_GLIBC) {
        const size_t init = (size_t)find("__pthread_init_static_tls");
        generation = f[8] == init ? 7 : 6;
        known = init && f[2] == libc.static_size && f[generation + 1] == init;
    } else {
        known = find_desc("_thread_db_rtld_global__dl_stack_used", &used) &&
                find_desc("_thread_db_rtld_global__dl_stack_user", &user) && user.offset == used.offset + 16 &&
                used.offset == list.offset + 56;
    }
    const union dtv *dtv = head(vt_arch_tp())->dtv;
    if (known && f[in_use] <= libc.static_size && f[1] < 4096 && f[generation] >= dtv[0].counter &&
        f[generation] < dtv[0].counter + (1 << 24))
        libc.rtld_gen = &f[generation];
    if (!refresh())
        return refuse("no memory for the list of modules");
    if (mods.libc_index < 0)
        return refuse("the C library has no static TLS");
    return true;
}

static bool well_formed(const struct list *l)
{
    return l->next && l->prev && l->next->prev == l && l->prev->next == l;
}

/* The lists and their lock: _dl_stack_used, _dl_stack_user, _dl_stack_cache, _dl_stack_cache_actsize,
 * _dl_in_flight_stack, _dl_stack_cache_lock (sysdeps/generic/ldsodefs.h, 2.34 to 2.42). */
static bool find_list_in_rtld(struct list **used_head)
{
    struct desc used, user;
    if (!find_desc("_thread_db_rtld_global__dl_stack_used", &used) ||
        !find_desc("_thread_db_rtld_global__dl_stack_user", &user))
        return false;
    struct list *user_head = (struct list *)(libc.rtld + user.offset);
    const size_t *actsize = (const size_t *)(user_head + 2);
    *used_head = (struct list *)(libc.rtld + used.offset);
    libc.list_head = user_head;
    libc.in_flight = (uintptr_t *)(actsize + 1);
    libc.list_word = (atomic_int *)(actsize + 2);
    return well_formed(user_head + 1) && *actsize % 4096 == 0 && *actsize >> 40 == 0;
}

/* In 2.31 they are variables of libpthread (nptl/allocatestack.c). */
static bool find_list_by_name(struct list **used_head)
{
    *used_head = find("stack_used");
    libc.list_head = find("__stack_user");
    libc.in_flight = find("in_flight_stack");
    libc.list_word = find("stack_cache_lock");
    return *used_head && libc.list_head && libc.in_flight && libc.list_word;
}

static void find_list(void)
{
    struct list *used_head;
    if (!libc.rtld_gen || !(VT_OLD_GLIBC ? find_list_by_name(&used_head) : find_list_in_rtld(&used_head)))
        return;
    const struct list *user_head = libc.list_head;
    int word = atomic_load_explicit(libc.list_word, memory_order_relaxed);
    if (word < 0 || word > 2)
        return;
    /* The calling thread must be on one of the two. */
    list_lock();
    const struct list *me = node(vt_arch_tp());
    bool found = false;
    if (well_formed(used_head) && well_formed(user_head) && *libc.in_flight == 0) {
        for (const struct list *l = used_head->next; l != used_head && !found; l = l->next)
            found = l == me;
        for (const struct list *l = user_head->next; l != user_head && !found; l = l->next)
            found = l == me;
    }
    list_unlock();
    libc.has_list = found;
}

/* Takes note of the words of [block, block + size) that differ from `before`. */
static void note_changes(const char *tp, const char *before, const char *block, size_t size)
{
    for (size_t i = 0; i + 8 <= size; i += 8) {
        ptrdiff_t offset = block + i - tp;
        bool known = offset == (libc.err & -8L) || offset == (libc.h_err & -8L) || offset == libc.resp;
        for (unsigned k = 0; k < libc.n_kept; k++)
            known |= libc.kept[k] == offset;
        if (!known && memcmp(before + i, block + i, 8) != 0 && libc.n_kept < MAX_KEPT)
            libc.kept[libc.n_kept++] = offset;
    }
}

/* Finds the words in which libc keeps what it has allocated for a thread and no function of it gives back:
 * malloc's tcache and arena, and the state of getrandom since 2.41, by letting it do so on a TCB that nobody
 * uses. It is libc's own malloc that is called, never the program's: another one has a module of its own, and
 * destructors to clean up with, and may remember that TCB. Where nothing is found there is nothing to keep,
 * or a little memory is lost with each thread. */
static void find_kept(void)
{
    /* Of a thread that has called dlsym or the like; it says that there is no error, after vt_tcb_leave. */
    char *result = find("__libc_dlerror_result");
    libc.n_kept = 0; /* of an attempt that a fork has cut off */
    if (result) {
        libc.dl_result = result - (char *)vt_arch_tp();
        libc.kept[libc.n_kept++] = libc.dl_result;
    }

    void *(*libc_malloc)(size_t);
    void (*libc_free)(void *);
    ssize_t (*libc_getrandom)(void *, size_t, unsigned);
    *(void **)&libc_malloc = find("__libc_malloc");
    *(void **)&libc_free = find("__libc_free");
    *(void **)&libc_getrandom = find("getrandom");
    size_t size = round_up(libc.size, 4096);
    char *mem = vt_sys_map(size);
    void *tp;
    if (!mem)
        return;
    if (make(mem + size, VT_TCB_TID_MIN, &tp, false) != 0) {
        vt_sys2(SYS_munmap, (long)mem, (long)size);
        return;
    }
    const struct module *m = &atomic_load_explicit(&mods.mod, memory_order_relaxed)[mods.libc_index];
    char *block = (char *)tp - m->offset;
    char before[4096];
    if (m->memsz + libc.sizeof_pthread <= sizeof(before)) {
        memcpy(before, block, m->memsz);
        memcpy(before + m->memsz, tp, libc.sizeof_pthread);
        uint64_t all = ~0ULL, old = 0;
        vt_sys4(SYS_rt_sigprocmask, 0 /* SIG_BLOCK */, (long)&all, (long)&old, sizeof(all));
        void *self = vt_arch_tp();
        vt_arch_set_tp(tp);
        if (libc_malloc && libc_free) {
            void *volatile a = libc_malloc(24);
            void *volatile b = libc_malloc(100);
            void *volatile c = libc_malloc(5000);
            libc_free(a);
            libc_free(b);
            libc_free(c);
        }
        char byte;
        if (libc_getrandom)
            libc_getrandom(&byte, 1, 1 /* GRND_NONBLOCK */);
        vt_arch_set_tp(self);
        vt_sys_sigmask(old);
        note_changes(tp, before, block, m->memsz);
        note_changes(tp, before + m->memsz, tp, libc.sizeof_pthread);
        /* As many would be something else. */
        if (libc.n_kept == MAX_KEPT)
            libc.n_kept = 0;
    }
    vt_tcb_free(tp);
    vt_sys2(SYS_munmap, (long)mem, (long)size);
}

static void add_line(ptrdiff_t offset)
{
    /* Thread pointers are aligned to at least a line; the cast truncates towards lower addresses. */
    short line = (short)((offset - ((offset % 64) + 64) % 64));
    for (unsigned i = 0; i < libc.n_lines; i++)
        if (libc.line[i] == line)
            return;
    if (libc.n_lines < MAX_LINES && offset > SHRT_MIN + 64 && offset < SHRT_MAX)
        libc.line[libc.n_lines++] = line;
}

/* The cache lines that a thread's life touches. */
static void find_lines(void)
{
    const size_t fields[] = {
        0, 64, libc.tid, libc.cancelhandling, libc.robust, libc.specific_used, libc.list, libc.sizeof_pthread};
    for (unsigned i = 0; i < sizeof fields / sizeof *fields; i++)
        add_line((ptrdiff_t)fields[i]);
    if (libc.has_res)
        add_line((ptrdiff_t)libc.stackblock);
    add_line((ptrdiff_t)libc.res_area);
    for (ptrdiff_t at = -64; at >= -512 && -at < (ptrdiff_t)libc.static_size + 64; at -= 64)
        add_line(at);
}

static bool find_all(void)
{
    if (!find_functions() || !find_fields())
        return false;
    find_res();
    if (!find_variables() || !find_modules())
        return false;
    find_list();
    find_kept();
    find_lines();
    return true;
}

static bool init(void)
{
    vt_symtab_open(&symtab);
    bool ok = find_all();
    vt_symtab_close(&symtab);
    return ok;
}

bool vt_tcb_known(void)
{
    vt_symtab_open(&symtab);
    bool ok = find_functions() && find_fields();
    vt_symtab_close(&symtab);
    return ok;
}

int vt_tcb_init(void)
{
    int state = atomic_load_explicit(&init_state, memory_order_acquire);
    if (!state) {
        vt_lock(&init_lock);
        state = atomic_load_explicit(&init_state, memory_order_relaxed);
        if (!state) {
            vt_real_ready();
            state = init() ? 1 : ENOSYS;
            if (state == 1)
                why = "";
            atomic_store_explicit(&init_state, state, memory_order_release);
        }
        vt_unlock(&init_lock);
    }
    return state == 1 ? 0 : state;
}

const char *vt_tcb_why(void)
{
    return why;
}
