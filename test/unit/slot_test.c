/* With the module's own text: some of its ways are those of other kernels. */
#include "slot.c"

#include "arch.h"

#include <check.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TID VT_TCB_TID_MIN
#define MIB (1ul << 20)

static void begin(void)
{
    ck_assert_msg(vt_tcb_init() == 0, "%s", vt_tcb_why());
    vt_arch_init();
}

static struct vt_slot *must_get(struct vt_slot_cache *cache, size_t stack, size_t guard)
{
    struct vt_slot *s = NULL;
    ck_assert_int_eq(vt_slot_get(cache, stack, guard, &s), 0);
    ck_assert_ptr_nonnull(s);
    return s;
}

/* --- faults --- */

static sigjmp_buf fault_jump;
static void *volatile fault_addr;

static void on_fault(int sig, siginfo_t *info, void *context)
{
    (void)sig;
    (void)context;
    fault_addr = info->si_addr;
    siglongjmp(fault_jump, 1);
}

static void catch_faults(void)
{
    static char alt[65536];
    stack_t ss = {.ss_sp = alt, .ss_size = sizeof(alt)};
    ck_assert_int_eq(sigaltstack(&ss, NULL), 0);
    struct sigaction sa = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    ck_assert_int_eq(sigaction(SIGSEGV, &sa, NULL), 0);
}

static bool faults(volatile char *at)
{
    fault_addr = NULL;
    if (sigsetjmp(fault_jump, 1)) {
        ck_assert_ptr_eq(fault_addr, (void *)at);
        return true;
    }
    *at = 1;
    return false;
}

/* --- sizes --- */

static void check_layout(const struct vt_slot *s, size_t stack, size_t guard)
{
    ck_assert_uint_ge(s->stack_size, stack);
    ck_assert_uint_ge((size_t)(s->stack_hi - s->stack_lo), s->stack_size);
    ck_assert_uint_eq((uintptr_t)s->stack_hi % 64, 0);
    ck_assert_uint_eq((uintptr_t)s->stack_lo % PAGE, 0);
    ck_assert_uint_ge(s->guard_size, guard);
    ck_assert_uint_ge((size_t)(s->top - s->stack_hi), vt_tcb_size());
    ck_assert_ptr_eq(vt_slot_find(s->stack_lo), s);
    ck_assert_ptr_eq(vt_slot_find(s->stack_hi - 1), s);
    ck_assert_ptr_eq(vt_slot_find(s->top - 1), s);
    if (s->guard_size) {
        ck_assert_ptr_eq(vt_slot_find(s->stack_lo - 1), s);
        ck_assert_ptr_eq(vt_slot_find(s->stack_lo - s->guard_size), s);
        ck_assert(vt_slot_in_guard(s, s->stack_lo - 1));
        ck_assert(vt_slot_in_guard(s, s->stack_lo - s->guard_size));
    }
    ck_assert(!vt_slot_in_guard(s, s->stack_lo));
    ck_assert(!vt_slot_in_guard(s, s->stack_lo - s->guard_size - 1));
}

static const size_t sizes[] = {1,   4096,    16384,    20000,    32768,     65536,     100 << 10,  256 << 10, 300 << 10,
                               MIB, 8 * MIB, 10 * MIB, 64 * MIB, 100 * MIB, 512 * MIB, 1000 * MIB, 1024 * MIB};

START_TEST(all_sizes)
{
    begin();
    catch_faults();
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
        for (size_t guard = 0; guard <= 65536; guard = guard ? guard * 4 : 4096) {
            struct vt_slot *s[3];
            for (unsigned k = 0; k < 3; k++) {
                s[k] = must_get(NULL, sizes[i], guard);
                check_layout(s[k], sizes[i], guard);
                *(volatile char *)s[k]->stack_lo = 1;
                s[k]->stack_hi[-1] = 1;
                ck_assert_int_eq(vt_slot_tcb(s[k], TID + k), 0);
                ck_assert((char *)s[k]->tp >= s[k]->stack_hi);
                ck_assert((char *)s[k]->tp < s[k]->top);
            }
            if (guard) {
                ck_assert(faults(s[1]->stack_lo - 1));
                ck_assert(faults(s[1]->stack_lo - s[1]->guard_size));
            }
            for (unsigned k = 0; k < 3; k++) {
                ck_assert_uint_eq(vt_tcb_tid(s[k]->tp), TID + k);
                vt_slot_put(NULL, s[k]);
            }
        }
    struct vt_slot *s;
    ck_assert_int_eq(vt_slot_get(NULL, ~0ul, 0, &s), EINVAL);
    ck_assert_int_eq(vt_slot_get(NULL, 1, ~0ul, &s), EINVAL);
    int err = 0;
    for (int i = 0; i < 3 && err == 0; i++)
        err = vt_slot_get(NULL, 1ul << 46, 4096, &s);
    ck_assert_int_eq(err, EAGAIN);
    ck_assert_ptr_null(vt_slot_find(&s));
    ck_assert_ptr_null(vt_slot_find(NULL));
}
END_TEST

START_TEST(many_kinds)
{
    begin();
    /* More kinds than classes: later ones share. */
    for (size_t i = 1; i < 200; i++) {
        struct vt_slot *s;
        int err = vt_slot_get(NULL, i * 24680, (i % 5) * 4096, &s);
        if (err == EAGAIN && i > 100)
            continue;
        ck_assert_int_eq(err, 0);
        check_layout(s, i * 24680, (i % 5) * 4096);
        vt_slot_put(NULL, s);
    }
}
END_TEST

/* Neighbours keep what they have when one overflows. */
static void overflow_between(void)
{
    enum { N = 40 };
    struct vt_slot *s[N];
    for (unsigned i = 0; i < N; i++) {
        s[i] = must_get(NULL, 65536, 4096);
        ck_assert_int_eq(vt_slot_tcb(s[i], TID + i), 0);
        memset(s[i]->stack_lo, (int)i, (size_t)(s[i]->stack_hi - s[i]->stack_lo));
    }
    for (unsigned i = 0; i < N; i++)
        ck_assert(faults(s[i]->stack_lo - 1));
    for (unsigned i = 0; i < N; i++) {
        ck_assert_uint_eq(vt_tcb_tid(s[i]->tp), TID + i);
        for (char *p = s[i]->stack_lo; p < s[i]->stack_hi; p += 64)
            ck_assert_int_eq(*p, (char)i);
        vt_slot_put(NULL, s[i]);
    }
}

START_TEST(overflow)
{
    begin();
    catch_faults();
    overflow_between();
    /* And again on slots that were used. */
    overflow_between();
}
END_TEST

START_TEST(overflow_without_markers)
{
    begin();
    catch_faults();
    struct vt_slot *first = must_get(NULL, MIB, 4096);
    atomic_store(&markers, -1);
    overflow_between();
    struct vt_slot_stats st;
    vt_slot_stats(&st);
    ck_assert_uint_eq(st.guards_mprotect, 40 + (first->guard == VT_GUARD_MPROTECT));
    /* When the budget is spent, slots go without. */
    atomic_store(&map_budget, 5);
    for (int i = 0; i < 10; i++)
        ck_assert_int_eq(must_get(NULL, 128 << 10, 4096)->guard, i < 2 ? VT_GUARD_MPROTECT : VT_GUARD_NONE);
    vt_slot_stats(&st);
    ck_assert_uint_eq(st.guards_missing, 8);
    ck_assert_int_eq(atomic_load(&map_budget), 1);
}
END_TEST

/* --- reuse --- */

START_TEST(cache)
{
    begin();
    struct vt_slot_cache c = {0};
    struct vt_slot *a = must_get(&c, MIB, 4096);
    ck_assert_int_eq(vt_slot_tcb(a, TID), 0);
    void *tp = a->tp;
    vt_slot_put(&c, a);
    ck_assert_uint_eq(c.n, 1);
    ck_assert_ptr_eq(must_get(&c, MIB, 4096), a);
    ck_assert(a->tcb_ready);
    ck_assert_ptr_eq(a->tp, tp);
    /* Another kind goes past it. */
    struct vt_slot *b = must_get(&c, 2 * MIB, 4096);
    ck_assert_ptr_ne(a, b);
    vt_slot_put(&c, a);
    vt_slot_put(&c, b);
    ck_assert_uint_eq(c.n, 1);
    ck_assert_ptr_eq(must_get(NULL, 2 * MIB, 4096), b);
    ck_assert_ptr_eq(must_get(&c, MIB, 4096), a);

    struct vt_slot *s[200];
    for (int i = 0; i < 200; i++)
        s[i] = must_get(&c, MIB, 4096);
    for (int i = 0; i < 200; i++)
        for (int k = 0; k < i; k++)
            ck_assert_ptr_ne(s[i], s[k]);
    for (int i = 0; i < 200; i++) {
        vt_slot_put(&c, s[i]);
        ck_assert_uint_lt(c.n, VT_SLOT_PACK);
    }
    struct vt_slot_stats st;
    vt_slot_stats(&st);
    ck_assert_uint_eq(st.in_use, 2 + c.n + (c.spare ? VT_SLOT_PACK : 0));
    /* New ones are cut several at a time when there have been many. */
    unsigned made = st.made;
    ck_assert_uint_ge(made, 202);
    ck_assert_uint_le(made, 202 + 200 / CUT_SHARE);
    ck_assert_uint_eq(st.peak, made);
    vt_slot_cache_flush(&c);
    vt_slot_stats(&st);
    ck_assert_uint_eq(st.in_use, 2);
    for (int i = 0; i < 200; i++)
        must_get(NULL, MIB, 4096);
    vt_slot_stats(&st);
    ck_assert_uint_eq(st.made, made);
}
END_TEST

static bool in_memory(char *at)
{
    unsigned char v = 0;
    ck_assert_int_eq(vt_sys3(SYS_mincore, (long)((uintptr_t)at & ~(PAGE - 1)), PAGE, (long)&v), 0);
    return v & 1;
}

START_TEST(deep_gives_back)
{
    begin();
    catch_faults();
    struct vt_slot *s = must_get(NULL, 8 * MIB, 4096);
    ck_assert_int_eq(vt_slot_tcb(s, TID), 0);
    ck_assert(!in_memory(s->stack_lo));
    ck_assert(!in_memory(s->stack_hi - MIB));
    /* Deep at the first use, and again after many shallow ones. */
    for (int turn = 0; turn < 3; turn++) {
        memset(s->stack_hi - 2 * MIB, 1, 2 * MIB);
        vt_slot_put(NULL, s);
        int more = 0;
        for (; in_memory(s->stack_hi - MIB); more++) {
            ck_assert_int_lt(more, DEEP_SAMPLE_PUTS);
            ck_assert_ptr_eq(must_get(NULL, 8 * MIB, 4096), s);
            vt_slot_put(NULL, s);
        }
        if (turn == 0)
            ck_assert_int_eq(more, 0);
        ck_assert(in_memory(s->stack_hi - 1));
        ck_assert(in_memory(s->tp));
        ck_assert(faults(s->stack_lo - 1));
        for (int i = 0; i < 1000; i++)
            vt_slot_put(NULL, must_get(NULL, 8 * MIB, 4096));
        ck_assert_ptr_eq(must_get(NULL, 8 * MIB, 4096), s);
        ck_assert_int_eq(vt_slot_tcb(s, TID), 0);
    }
    struct vt_slot_stats st;
    vt_slot_stats(&st);
    ck_assert_uint_eq(st.deep, 3);
}
END_TEST

START_TEST(always_deep)
{
    begin();
    struct vt_slot *s[300];
    struct vt_slot_cache c = {0};
    for (int i = 0; i < 300; i++) {
        s[i] = must_get(&c, 8 * MIB, 4096);
        s[i]->stack_hi[-MIB] = s[i]->stack_hi[-30000] = 1;
        memset(s[i]->stack_hi - 40000, 1, 40000);
    }
    for (int i = 0; i < 300; i++)
        vt_slot_put(&c, s[i]);
    for (int i = 0; i < 300; i++)
        ck_assert(!in_memory(s[i]->stack_hi - MIB));
}
END_TEST

START_TEST(cold)
{
    begin();
    enum { N = 50 };
    struct vt_slot *s[N];
    vt_slot_put(NULL, must_get(NULL, 4 * MIB, 4096));
    warm_slots = 10;
    for (int turn = 0; turn < 3; turn++) {
        for (unsigned i = 0; i < N; i++) {
            s[i] = must_get(NULL, 4 * MIB, 4096);
            ck_assert_int_eq(vt_slot_tcb(s[i], TID + i), 0);
            ck_assert_uint_eq(vt_tcb_tid(s[i]->tp), TID + i);
            s[i]->stack_hi[-1] = 1;
        }
        for (int i = 0; i < N; i++)
            vt_slot_put(NULL, s[i]);
        int warm = 0;
        for (int i = 0; i < N; i++) {
            warm += s[i]->tcb_ready;
            ck_assert(in_memory(s[i]->top - 1) == s[i]->tcb_ready);
        }
        ck_assert_int_eq(warm, 10);
        /* The warm ones first. */
        for (int i = 0; i < 10; i++)
            ck_assert(must_get(NULL, 4 * MIB, 4096)->tcb_ready);
        ck_assert(!must_get(NULL, 4 * MIB, 4096)->tcb_ready);
    }
}
END_TEST

START_TEST(wrapped)
{
    begin();
    size_t size = 65536;
    char *mem = malloc(size + 1);
    struct vt_slot *s;
    struct vt_slot_cache c = {0};
    ck_assert_int_eq(vt_slot_wrap(&c, mem, 100, &s), EINVAL);
    ck_assert_int_eq(vt_slot_wrap(&c, mem, ~0ul, &s), EINVAL);
    for (int i = 0; i < 1000; i++) {
        ck_assert_int_eq(vt_slot_wrap(i % 2 ? &c : NULL, mem + 1, size, &s), 0);
        ck_assert(s->wrapped);
        ck_assert_ptr_eq(s->stack_lo, mem + 1);
        ck_assert_uint_ge((uintptr_t)s->stack_hi, (uintptr_t)(mem + 1 + size - 63));
        ck_assert(s->stack_hi <= mem + 1 + size);
        ck_assert_int_eq(vt_slot_tcb(s, TID + (unsigned)i), 0);
        memset(s->stack_lo, 1, (size_t)(s->stack_hi - s->stack_lo));
        ck_assert_uint_eq(vt_tcb_tid(s->tp), TID + (unsigned)i);
        ck_assert_ptr_eq(vt_slot_find(s->tp), s);
        vt_slot_put(i % 2 ? &c : NULL, s);
        ck_assert_ptr_eq(vt_slot_find(s->tp), s);
    }
    struct vt_slot_stats st;
    vt_slot_stats(&st);
    ck_assert_uint_le(st.made, 2);
    free(mem);
}
END_TEST

/* --- limits --- */

START_TEST(address_space_ends)
{
    begin();
    struct rlimit lim = {.rlim_cur = 1ul << 30, .rlim_max = 1ul << 30};
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &lim), 0);
    struct vt_slot *s[200];
    int n = 0, err = 0;
    while (n < 200 && (err = vt_slot_get(NULL, 8 * MIB, 4096, &s[n])) == 0) {
        ck_assert_int_eq(vt_slot_tcb(s[n], TID + (unsigned)n), 0);
        n++;
    }
    ck_assert_int_eq(err, EAGAIN);
    /* As many as fit, nearly. */
    ck_assert_int_ge(n, 100);
    struct vt_slot *other;
    ck_assert_int_eq(vt_slot_get(NULL, 8 * MIB, 4096, &other), EAGAIN);
    ck_assert_int_eq(vt_slot_get(NULL, 16384, 4096, &other), 0);
    vt_slot_put(NULL, s[--n]);
    ck_assert_int_eq(vt_slot_get(NULL, 8 * MIB, 4096, &other), 0);
}
END_TEST

static size_t status_kb(const char *field)
{
    char line[256];
    size_t value = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof(line), f))
        if (strncmp(line, field, strlen(field)) == 0)
            value = strtoul(line + strlen(field), NULL, 10);
    fclose(f);
    return value;
}

static size_t mappings(void)
{
    size_t n = 0;
    char line[512];
    FILE *f = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof(line), f))
        n++;
    fclose(f);
    return n;
}

/* VT_TEST_SLOTS says how many; each takes 12 KiB. */
START_TEST(very_many)
{
    begin();
    const char *e = getenv("VT_TEST_SLOTS");
    size_t n = e ? strtoul(e, NULL, 10) : 200000;
    long free_pages = sysconf(_SC_AVPHYS_PAGES);
    if ((size_t)free_pages < n * 4)
        n = (size_t)free_pages / 4;
    struct vt_slot **s = calloc(n, sizeof(*s));
    struct vt_slot_cache c = {0};
    size_t rss = status_kb("VmRSS:"), pte = status_kb("VmPTE:");
    for (size_t i = 0; i < n; i++) {
        s[i] = must_get(&c, 8 * MIB, 4096);
        ck_assert_int_eq(vt_slot_tcb(s[i], TID + (unsigned)i), 0);
        s[i]->stack_hi[-100] = 1;
    }
    size_t rss_each = (status_kb("VmRSS:") - rss) * 1024 / n, pte_each = (status_kb("VmPTE:") - pte) * 1024 / n;
    printf("  %zu slots: %zu bytes of memory and %zu of page tables each\n", n, rss_each, pte_each);
    /* Two pages, and what is known of the slot, and the dtv. */
    ck_assert_uint_le(rss_each, 8192 + 600);
    ck_assert_uint_le(pte_each, 4096 + 200);
    struct vt_slot_stats st;
    vt_slot_stats(&st);
    ck_assert_uint_eq(st.in_use, n + c.n + (c.spare ? VT_SLOT_PACK : 0));
    if (st.guards_marker)
        ck_assert_uint_le(mappings(), 1000);
    for (size_t i = 0; i < n; i++)
        ck_assert_uint_eq(vt_tcb_tid(s[i]->tp), TID + (unsigned)i);
    for (size_t i = 0; i < n; i++)
        vt_slot_put(&c, s[i]);
    /* The warm ones remain. */
    printf("  %zu KiB after they were put back\n", status_kb("VmRSS:") - rss);
    if (n > 2 * warm_slots)
        ck_assert_uint_le(status_kb("VmRSS:"), rss + warm_slots * 10 + n);
}
END_TEST

/* --- several kernel threads --- */

#define WORKERS 4
#define WORK    100000
#define HELD    64

static void *work(void *arg)
{
    unsigned me = (unsigned)(uintptr_t)arg, x = me * 7919 + 1;
    struct vt_slot_cache c = {0};
    struct vt_slot *held[HELD] = {0};
    static const size_t stack[] = {8 * MIB, 65536, 8 * MIB, 8 * MIB};
    for (int i = 0; i < WORK; i++) {
        x = x * 1103515245 + 12345;
        unsigned k = x >> 8 & (HELD - 1);
        struct vt_slot *s = held[k];
        if (s) {
            /* Whoever else had it would have written another number. */
            ck_assert_ptr_eq(s->next, (void *)(uintptr_t)(me * HELD + k + 1));
            ck_assert(s->in_use);
            vt_slot_put(x >> 20 & 3 ? &c : NULL, s);
            held[k] = NULL;
            continue;
        }
        s = held[k] = must_get(x >> 20 & 3 ? &c : NULL, stack[x >> 24 & 3], 4096);
        ck_assert_ptr_null(s->next);
        s->next = (void *)(uintptr_t)(me * HELD + k + 1);
        if ((x >> 16 & 7) == 0)
            ck_assert_int_eq(vt_slot_tcb(s, TID + me * HELD + k), 0);
    }
    for (unsigned k = 0; k < HELD; k++)
        if (held[k])
            vt_slot_put(&c, held[k]);
    vt_slot_cache_flush(&c);
    return NULL;
}

START_TEST(concurrent)
{
    begin();
    pthread_t t[WORKERS];
    for (uintptr_t i = 0; i < WORKERS; i++)
        ck_assert_int_eq(pthread_create(&t[i], NULL, work, (void *)i), 0);
    for (int i = 0; i < WORKERS; i++)
        pthread_join(t[i], NULL);
    struct vt_slot_stats st;
    vt_slot_stats(&st);
    ck_assert_uint_eq(st.in_use, 0);
    ck_assert_uint_le(st.made, WORKERS * (HELD + VT_SLOT_PACK) * 2);
}
END_TEST

static _Atomic bool stop;

static void *get_and_put(void *arg)
{
    (void)arg;
    struct vt_slot *s;
    /* No assertion: it would allocate, and not every malloc survives a fork in another thread's midst. */
    while (!atomic_load(&stop))
        if (vt_slot_get(NULL, MIB, 4096, &s) == 0)
            vt_slot_put(NULL, s);
    return NULL;
}

START_TEST(forks)
{
    begin();
    pthread_t t;
    struct vt_slot *mine = must_get(NULL, MIB, 4096);
    ck_assert_int_eq(pthread_create(&t, NULL, get_and_put, NULL), 0);
    for (int i = 0; i < 100; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            vt_tcb_fork_child();
            vt_slot_fork_child();
            struct vt_slot *s;
            catch_faults();
            if (vt_slot_get(NULL, MIB, 4096, &s) != 0 || vt_slot_tcb(s, TID) != 0 || !faults(s->stack_lo - 1) ||
                !faults(mine->stack_lo - 1))
                _exit(1);
            vt_slot_put(NULL, s);
            _exit(0);
        }
        int status;
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert_int_eq(status, 0);
    }
    atomic_store(&stop, true);
    pthread_join(t, NULL);
}
END_TEST

/* --- cost ---
 */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void cost(const char *what, struct vt_slot_cache *c, bool tcb)
{
    double best = 1e18;
    for (int turn = 0; turn < 5; turn++) {
        double from = now();
        for (unsigned i = 0; i < 100000; i++) {
            struct vt_slot *s;
            vt_slot_get(c, 8 * MIB, 4096, &s);
            if (tcb)
                vt_slot_tcb(s, TID + i);
            vt_slot_put(c, s);
        }
        double took = (now() - from) / 100000;
        best = took < best ? took : best;
    }
    printf("  %-28s %8.1f ns\n", what, best);
}

START_TEST(costs)
{
    begin();
    struct vt_slot_cache c = {0};
    cost("get + put, shared", NULL, false);
    cost("get + put, cached", &c, false);
    cost("get + tcb + put, cached", &c, true);
    enum { N = 10000 };
    static struct vt_slot *s[N];
    for (int turn = 0; turn < 2; turn++) {
        double from = now();
        for (int i = 0; i < N; i++)
            vt_slot_get(&c, 8 * MIB, 4096, &s[i]); /* Check's assertions make system calls */
        printf("  %-28s %8.1f ns\n", turn ? "get, used" : "get, first use", (now() - from) / N);
        from = now();
        for (int i = 0; i < N; i++)
            vt_slot_tcb(s[i], TID);
        printf("  %-28s %8.1f ns\n", turn ? "tcb, used" : "tcb, first use", (now() - from) / N);
        from = now();
        for (int i = 0; i < N; i++)
            vt_slot_put(&c, s[i]);
        printf("  %-28s %8.1f ns\n", "put, many in a row", (now() - from) / N);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("slot");
    TCase *c = tcase_create("slot");
    tcase_set_timeout(c, 600);
    tcase_add_test(c, all_sizes);
    tcase_add_test(c, many_kinds);
    tcase_add_test(c, overflow);
    tcase_add_test(c, overflow_without_markers);
    tcase_add_test(c, cache);
    tcase_add_test(c, deep_gives_back);
    tcase_add_test(c, always_deep);
    tcase_add_test(c, cold);
    tcase_add_test(c, wrapped);
    tcase_add_test(c, address_space_ends);
    tcase_add_test(c, very_many);
    tcase_add_test(c, concurrent);
    tcase_add_test(c, forks);
    tcase_add_test(c, costs);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
