#include "unwind.h"

#include <libunwind.h>
#include <stdlib.h>
#include <string.h>

/* libunwind's search in a binary search table, for the accessors of another process; in its interface, but in
 * no header. */
extern int UNW_OBJ(dwarf_search_unwind_table)(unw_addr_space_t, unw_word_t, unw_dyn_info_t *, unw_proc_info_t *, int, void *);

#define FRAMES_MAX 65536

static unw_addr_space_t space;
static uint64_t outermost_lo, outermost_hi; /* the function at the bottom of virtual threads' stacks */

/* The thread in hand, and what went wrong with it. */
struct job {
    const struct thread *t;
    bool no_info; /* libunwind had to guess */
};

/* --- libunwind's way to the copies ---------------------------------------------------------------------- */

static int find_info(unw_addr_space_t as, unw_word_t ip, unw_proc_info_t *pi, int need, void *arg)
{
    struct job *job = arg;
    const struct module *m = target_module(ip);
    if (m && m->fde_count) {
        unw_dyn_info_t di = {
            .start_ip = m->lo,
            .end_ip = m->hi,
            .format = UNW_INFO_FORMAT_REMOTE_TABLE,
            .u.rti.segbase = m->eh_frame_hdr,
            .u.rti.table_data = m->fde_table,
            .u.rti.table_len = m->fde_count * 8 / sizeof(unw_word_t), /* entries of 8 bytes */
        };
        int ret = UNW_OBJ(dwarf_search_unwind_table)(as, ip, &di, pi, need, arg);
        if (ret == 0)
            return 0;
    }
    job->no_info = true;
    return -UNW_ENOINFO;
}

static void put_info(unw_addr_space_t as, unw_proc_info_t *pi, void *arg)
{
    (void)as, (void)pi, (void)arg;
}

static int no_list(unw_addr_space_t as, unw_word_t *list, void *arg)
{
    (void)as, (void)list, (void)arg;
    return -UNW_ENOINFO;
}

static const uint8_t *in_pieces(const struct thread *t, uint64_t addr, size_t size)
{
    for (unsigned i = 0; i < t->npieces; i++) {
        const struct piece *p = &t->pieces[i];
        if (addr >= p->lo && addr < p->hi && size <= p->hi - addr)
            return p->data + (addr - p->lo);
    }
    return NULL;
}

static int access_memory(unw_addr_space_t as, unw_word_t addr, unw_word_t *value, int write, void *arg)
{
    const struct job *job = arg;
    const uint8_t *there = in_pieces(job->t, addr, sizeof *value);
    (void)as;
    if (write)
        return -UNW_EINVAL;
    if (there) {
        memcpy(value, there, sizeof *value);
        return 0;
    }
    /* Code and tables, which do not change. What else there is has changed since, perhaps. */
    return target_module(addr) && target_read_code(addr, value, sizeof *value) ? 0 : -UNW_EINVAL;
}

static int access_register(unw_addr_space_t as, unw_regnum_t reg, unw_word_t *value, int write, void *arg)
{
    const struct job *job = arg;
    (void)as;
    if (write || reg < 0 || reg >= REGISTERS)
        return -UNW_EBADREG;
    *value = job->t->regs.r[reg];
    return 0;
}

static int no_float(unw_addr_space_t as, unw_regnum_t reg, unw_fpreg_t *value, int write, void *arg)
{
    (void)as, (void)reg, (void)value, (void)write, (void)arg;
    return -UNW_EBADREG;
}

static int no_resume(unw_addr_space_t as, unw_cursor_t *c, void *arg)
{
    (void)as, (void)c, (void)arg;
    return -UNW_EINVAL;
}

static int no_name(unw_addr_space_t as, unw_word_t addr, char *buf, size_t size, unw_word_t *offset, void *arg)
{
    (void)as, (void)addr, (void)buf, (void)size, (void)offset, (void)arg;
    return -UNW_ENOINFO;
}

static void start(void)
{
    static unw_accessors_t accessors = {
        .find_proc_info = find_info,
        .put_unwind_info = put_info,
        .get_dyn_info_list_addr = no_list,
        .access_mem = access_memory,
        .access_reg = access_register,
        .access_fpreg = no_float,
        .resume = no_resume,
        .get_proc_name = no_name,
    };
    space = unw_create_addr_space(&accessors, 0);
    if (!space)
        die(1, "no memory");
    unw_set_caching_policy(space, UNW_CACHE_GLOBAL);
    unw_set_cache_size(space, 1024, 0);
    if (!engine.found)
        return;
    struct thread none = {0};
    struct job job = {&none, false};
    unw_proc_info_t pi;
    /* A context that has not run is at its first instruction, with call frame information from one byte
     * before. */
    if (find_info(space, engine.outermost, &pi, 0, &job) == 0) {
        outermost_lo = pi.start_ip;
        outermost_hi = pi.end_ip;
    }
}

/* --- equal stacks are one ------------------------------------------------------------------------------- */

#define BUCKETS 65536
static struct stack *buckets[BUCKETS];
static uint32_t nstacks;

size_t unwind_stacks(void)
{
    return nstacks;
}

const struct stack *unwind_intern(const uint64_t *ip, uint32_t n, const char *trouble)
{
    uint64_t hash = n;
    for (uint32_t i = 0; i < n; i++)
        hash = (hash ^ ip[i]) * UINT64_C(0x9e3779b97f4a7c15) ^ hash >> 29;
    for (struct stack *s = buckets[hash % BUCKETS]; s; s = s->next)
        if (s->hash == (uint32_t)hash && s->n == n && s->trouble == trouble && memcmp(s->ip, ip, n * sizeof *ip) == 0)
            return s;
    struct stack *s = xalloc(sizeof *s + n * sizeof *ip);
    s->hash = (uint32_t)hash;
    s->id = nstacks++;
    s->n = n;
    s->trouble = trouble;
    memcpy(s->ip, ip, n * sizeof *ip);
    s->next = buckets[hash % BUCKETS];
    buckets[hash % BUCKETS] = s;
    return s;
}

/* --- stacks of one shape -------------------------------------------------------------------------------- */

/* Of a stack that libunwind has gone through: where, from the stack pointer at its top, each return address
 * was. One that is as deep, begins at the same instruction and has the same return addresses at the same
 * places has been made by the same calls, so it is the same stack; thousands of threads that wait in the same
 * way are recognised so. */
struct shape {
    struct shape *next;
    uint64_t ip, depth;
    const struct stack *stack;
    uint32_t at[]; /* by frame, from the second on */
};

static struct shape *shapes[4096];

static struct shape **shapes_of(uint64_t ip, uint64_t depth)
{
    return &shapes[(ip ^ depth * 31) * UINT64_C(0x9e3779b97f4a7c15) >> 52];
}

static const struct stack *recognise(const struct thread *t)
{
    const struct piece *p = &t->pieces[0];
    uint64_t sp = t->regs.r[REG_NR_RSP], depth = t->stack_hi - sp;
    unsigned tries = 0;
    for (struct shape *s = *shapes_of(t->regs.r[REG_NR_RIP], depth); s && tries < 64; s = s->next, tries++) {
        if (s->ip != t->regs.r[REG_NR_RIP] || s->depth != depth)
            continue;
        uint32_t i = 1;
        for (; i < s->stack->n; i++) {
            uint64_t ret;
            memcpy(&ret, p->data + (sp - p->lo) + s->at[i], sizeof ret);
            if (ret != s->stack->ip[i])
                break;
        }
        if (i == s->stack->n)
            return s->stack;
    }
    return NULL;
}

static void remember(const struct thread *t, const struct stack *stack, const uint32_t *at)
{
    struct shape *s = xalloc(sizeof *s + stack->n * sizeof *at);
    s->ip = t->regs.r[REG_NR_RIP];
    s->depth = t->stack_hi - t->regs.r[REG_NR_RSP];
    s->stack = stack;
    memcpy(s->at, at, stack->n * sizeof *at);
    struct shape **list = shapes_of(s->ip, s->depth);
    s->next = *list;
    *list = s;
}

/* --- one stack ------------------------------------------------------------------------------------------ */

static const struct stack *unwind(const struct thread *t)
{
    static uint64_t ip[FRAMES_MAX];
    static uint32_t at[FRAMES_MAX];
    struct job job = {t, false};
    unw_cursor_t c;
    unw_word_t value, sp = t->regs.r[REG_NR_RSP], last_sp = sp;
    uint32_t n = 0;
    int more = -1;
    bool exact = t->lwp != 0 || !t->started;
    /* Parked, on a stack of its own, all of which is in one piece: then its shape is worth remembering. */
    bool shaped = t->virtual && t->lwp == 0 && t->npieces == 1 && t->pieces[0].hi == t->stack_hi && sp >= t->pieces[0].lo;
    const struct stack *known = shaped ? recognise(t) : NULL;
    if (known)
        return known;
    if (unw_init_remote(&c, space, &job) != 0)
        return unwind_intern(NULL, 0, "libunwind refuses it");
    for (;;) {
        if (unw_get_reg(&c, UNW_REG_IP, &value) != 0 || value == 0)
            break;
        if (n == FRAMES_MAX) {
            more = -UNW_ESTOPUNWIND;
            break;
        }
        bool by_kernel = unw_is_signal_frame(&c) > 0;
        /* Where a thread begins nobody has returned to yet: a switch that is about to enter it is seen so. */
        bool begins = t->virtual && value == outermost_lo;
        ip[n++] = exact || by_kernel || begins ? value | IP_EXACT : value;
        if (t->virtual && value >= outermost_lo && value < outermost_hi) {
            more = 0; /* whoever may have called that is not there */
            break;
        }
        exact = by_kernel; /* what a handler interrupted has called nobody */
        if ((more = unw_step(&c)) <= 0)
            break;
        if (unw_get_reg(&c, UNW_REG_SP, &value) != 0)
            break;
        last_sp = value;
        /* The return address lies below the frame of the caller, but for the frames that the kernel makes for
         * handlers. */
        uint64_t place = value - 8, found = 0;
        unw_word_t next;
        const uint8_t *there = in_pieces(t, place, 8);
        if (there)
            memcpy(&found, there, 8);
        if (!there || unw_get_reg(&c, UNW_REG_IP, &next) != 0 || found != next || n == FRAMES_MAX)
            shaped = false;
        else
            at[n] = (uint32_t)(place - sp);
    }
    const char *trouble = NULL;
    if (job.no_info)
        trouble = "a function without call frame information";
    else if (n == 0 && !target.live)
        trouble = "its stack is not in the core file";
    else if (n == FRAMES_MAX)
        trouble = "too deep";
    else if (more < 0)
        trouble = "it leads to where nothing was copied, or it is damaged";
    else if (t->virtual && !(n && (ip[n - 1] & ~IP_EXACT) >= outermost_lo && (ip[n - 1] & ~IP_EXACT) < outermost_hi &&
                             last_sp > t->stack_lo && last_sp <= t->stack_hi))
        trouble = "it does not end where threads begin";
    const struct stack *stack = unwind_intern(ip, n, trouble);
    if (shaped && !trouble && n)
        remember(t, stack, at);
    return stack;
}

void unwind_all(uint32_t only)
{
    start();
    for (size_t i = 0; i < engine.nthreads; i++) {
        struct thread *t = &engine.threads[i];
        if (only && t->tid != only)
            continue;
        t->stack = t->trouble ? unwind_intern(NULL, 0, t->trouble) : unwind(t);
    }
}
