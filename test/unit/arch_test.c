/* Tests of arch/; built once for each architecture. */
#include "arch.h"

#include <check.h>
#include <dlfcn.h>
#include <errno.h>
#include <fenv.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>
#ifdef HAVE_LIBUNWIND
#define UNW_LOCAL_ONLY
#include <libunwind.h>
#endif

#define STACK_SIZE 65536

/* arch_throw.cpp */
int throw_and_catch(int value);
int throw_through(void (*step)(void));
void throw_uncaught(void);
int cleanups_run(void (*body)(void));

static struct vt_context main_context;

static bool is_generic(void)
{
    return strcmp(vt_arch_name, "generic") == 0;
}

/* Tests run in a process of their own each; with way 0 the thread pointer is set the slow way. */
static void init(int way)
{
    if (way)
        ck_assert_int_eq(vt_arch_init(), 0);
}

static void *new_stack(void)
{
    void *s = aligned_alloc(4096, STACK_SIZE);

    ck_assert_ptr_nonnull(s);
    memset(s, 0xa5, STACK_SIZE);
    return s;
}

static void make(struct vt_context *c, void (*entry)(void *), void *arg)
{
    char *s = new_stack();

    vt_context_make(c, s, s + STACK_SIZE, entry, arg);
}

static void to(struct vt_context *from, struct vt_context *c)
{
    vt_context_switch(from, c, vt_arch_tp());
}

static uint64_t rng_state = 88172645463325252U;

static uint64_t rng(void)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return rng_state;
}

/* --- entry ------------------------------------------------------------------------------------------ */

static struct {
    struct vt_context context;
    char *stack;
    void *arg;
    uintptr_t frame;
    bool aligned;
} first;

static void first_entry(void *arg)
{
    /* A local that wants 16 bytes gets them only if the stack was aligned at entry. */
    _Alignas(16) volatile char local[16] = {0};
    volatile uintptr_t at = (uintptr_t)local;

    first.arg = arg;
    first.frame = at;
    first.aligned = at % 16 == 0 && ((uintptr_t)__builtin_frame_address(0)) % 16 == 0;
    to(&first.context, &main_context);
    abort();
}

START_TEST(entry)
{
    init(_i);
    /* Any size and alignment of the stack will do. */
    for (unsigned slack = 0; slack < 64; slack++) {
        memset(&first, 0, sizeof(first));
        first.stack = new_stack();
        vt_context_make(&first.context, first.stack, first.stack + STACK_SIZE - slack, first_entry, &first);
        to(&main_context, &first.context);
        ck_assert_ptr_eq(first.arg, &first);
        ck_assert(first.aligned);
        ck_assert_uint_gt(first.frame, (uintptr_t)first.stack);
        ck_assert_uint_lt(first.frame, (uintptr_t)first.stack + STACK_SIZE - slack);
        for (unsigned i = STACK_SIZE - slack; i < STACK_SIZE; i++)
            ck_assert_uint_eq((unsigned char)first.stack[i], 0xa5);
        free(first.stack);
    }
}
END_TEST

/* --- registers -------------------------------------------------------------------------------------- */

/*
 * Switches with the callee-saved registers set to seed (rbx), seed + 1 (rbp), seed + 2 (r12) to seed + 5
 * (r15); returns the number of those that have changed afterwards. With `flags` as rflags meanwhile.
 */
long switch_with_registers(struct vt_context *save, const struct vt_context *load, void *tp, uint64_t seed, uint64_t flags);

__asm__(".text\n"
        ".globl switch_with_registers\n"
        ".type switch_with_registers, @function\n"
        "switch_with_registers:\n"
        ".cfi_startproc\n"
        "push %rbx\n .cfi_adjust_cfa_offset 8\n .cfi_rel_offset %rbx, 0\n"
        "push %rbp\n .cfi_adjust_cfa_offset 8\n .cfi_rel_offset %rbp, 0\n"
        "push %r12\n .cfi_adjust_cfa_offset 8\n .cfi_rel_offset %r12, 0\n"
        "push %r13\n .cfi_adjust_cfa_offset 8\n .cfi_rel_offset %r13, 0\n"
        "push %r14\n .cfi_adjust_cfa_offset 8\n .cfi_rel_offset %r14, 0\n"
        "push %r15\n .cfi_adjust_cfa_offset 8\n .cfi_rel_offset %r15, 0\n"
        "push %rcx\n .cfi_adjust_cfa_offset 8\n"
        "mov %rcx, %rbx\n"
        "lea 1(%rcx), %rbp\n"
        "lea 2(%rcx), %r12\n"
        "lea 3(%rcx), %r13\n"
        "lea 4(%rcx), %r14\n"
        "lea 5(%rcx), %r15\n"
        "push %r8\n .cfi_adjust_cfa_offset 8\n"
        "popf\n .cfi_adjust_cfa_offset -8\n"
        "call *vt_context_switch_fn(%rip)\n"
        "push $0x202\n .cfi_adjust_cfa_offset 8\n"
        "popf\n .cfi_adjust_cfa_offset -8\n"
        "pop %rcx\n .cfi_adjust_cfa_offset -8\n"
        "xor %eax, %eax\n"
        "cmp %rcx, %rbx\n je 1f\n inc %eax\n1:\n"
        "inc %rcx\n cmp %rcx, %rbp\n je 1f\n inc %eax\n1:\n"
        "inc %rcx\n cmp %rcx, %r12\n je 1f\n inc %eax\n1:\n"
        "inc %rcx\n cmp %rcx, %r13\n je 1f\n inc %eax\n1:\n"
        "inc %rcx\n cmp %rcx, %r14\n je 1f\n inc %eax\n1:\n"
        "inc %rcx\n cmp %rcx, %r15\n je 1f\n inc %eax\n1:\n"
        "pop %r15\n .cfi_adjust_cfa_offset -8\n .cfi_restore %r15\n"
        "pop %r14\n .cfi_adjust_cfa_offset -8\n .cfi_restore %r14\n"
        "pop %r13\n .cfi_adjust_cfa_offset -8\n .cfi_restore %r13\n"
        "pop %r12\n .cfi_adjust_cfa_offset -8\n .cfi_restore %r12\n"
        "pop %rbp\n .cfi_adjust_cfa_offset -8\n .cfi_restore %rbp\n"
        "pop %rbx\n .cfi_adjust_cfa_offset -8\n .cfi_restore %rbx\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size switch_with_registers, . - switch_with_registers\n");

#define RFLAGS      0x202
#define RFLAGS_TRAP 0x302

static struct vt_context other_context;

static void registers_entry(void *arg)
{
    uint64_t seed = 1000;

    (void)arg;
    for (;;) {
        if (switch_with_registers(&other_context, &main_context, vt_arch_tp(), seed, RFLAGS))
            abort();
        seed += 100;
    }
}

START_TEST(registers)
{
    init(_i);
    make(&other_context, registers_entry, NULL);
    for (uint64_t i = 0; i < 100; i++)
        ck_assert_int_eq(switch_with_registers(&main_context, &other_context, vt_arch_tp(), 0x1234567800000000U + i, RFLAGS),
                         0);
}
END_TEST

START_TEST(exported)
{
    ucontext_t uc;

    init(_i);
    make(&other_context, registers_entry, NULL);
    vt_context_export(&other_context, &uc);
    ck_assert_int_eq(uc.uc_mcontext.gregs[REG_RBP], 0);
    ck_assert_int_ne(uc.uc_mcontext.gregs[REG_RIP], 0);
    ck_assert_int_eq(uc.uc_mcontext.gregs[REG_RSP] % 8, 0);
    to(&main_context, &other_context);

    memset(&uc, 0xff, sizeof(uc));
    vt_context_export(&other_context, &uc);
    ck_assert_ptr_eq(uc.uc_mcontext.fpregs, &uc.__fpregs_mem);
    if (is_generic())
        return; /* parked in a function of C, which used the registers for itself */
    ck_assert_int_eq(uc.uc_mcontext.gregs[REG_RBX], 1000);
    ck_assert_int_eq(uc.uc_mcontext.gregs[REG_RBP], 1001);
    ck_assert_int_eq(uc.uc_mcontext.gregs[REG_R12], 1002);
    ck_assert_int_eq(uc.uc_mcontext.gregs[REG_R13], 1003);
    ck_assert_int_eq(uc.uc_mcontext.gregs[REG_R14], 1004);
    ck_assert_int_eq(uc.uc_mcontext.gregs[REG_R15], 1005);
    /* At the return address there is the seed that switch_with_registers pushed. */
    ck_assert_uint_eq(*(uint64_t *)uc.uc_mcontext.gregs[REG_RSP], 1000);
    ck_assert_uint_gt(uc.uc_mcontext.gregs[REG_RIP], (uintptr_t)switch_with_registers);
    ck_assert_uint_lt(uc.uc_mcontext.gregs[REG_RIP], (uintptr_t)switch_with_registers + 256);
}
END_TEST

/* --- many contexts, each with a floating-point environment of its own ------------------------------- */

#define MANY 1000

static struct many {
    struct vt_context context;
    int rounding; /* of both units */
    int raised;   /* exceptions */
    bool x87;     /* raised in that unit */
    unsigned visits;
} many[MANY];

static unsigned long many_left;

static uint32_t mxcsr(void)
{
    uint32_t v;

    __asm__ volatile("stmxcsr %0" : "=m"(v));
    return v;
}

static uint16_t fcw(void)
{
    uint16_t v;

    __asm__ volatile("fnstcw %0" : "=m"(v));
    return v;
}

static uint16_t fsw(void)
{
    uint16_t v;

    __asm__ volatile("fnstsw %0" : "=a"(v));
    return v;
}

static void raise_in(bool x87, int what)
{
    if (x87) {
        fenv_t env;

        __asm__ volatile("fnstenv %0" : "=m"(env));
        env.__status_word |= (unsigned short)what;
        __asm__ volatile("fldenv %0" : : "m"(env));
    } else {
        uint32_t v = mxcsr() | (uint32_t)what;

        __asm__ volatile("ldmxcsr %0" : : "m"(v));
    }
}

static void many_check(const struct many *m, const volatile uint64_t *local)
{
    /* FE_* rounding modes are the x87 bits; those of MXCSR are three bits higher. */
    if ((fcw() & 0xc00) != m->rounding || (mxcsr() & 0x6000) != (uint32_t)m->rounding << 3)
        abort();
    if ((fsw() & FE_ALL_EXCEPT) != (m->x87 ? m->raised : 0))
        abort();
    if ((mxcsr() & FE_ALL_EXCEPT) != (uint32_t)(m->x87 ? 0 : m->raised))
        abort();
    for (unsigned i = 0; i < 8; i++)
        if (local[i] != (uintptr_t)m + i)
            abort();
}

static void many_entry(void *arg)
{
    struct many *m = arg;
    volatile uint64_t local[8];
    static const int roundings[] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
    static const int exceptions[] = {0, FE_INEXACT, FE_OVERFLOW | FE_INEXACT, FE_DIVBYZERO, FE_INVALID};

    for (unsigned i = 0; i < 8; i++)
        local[i] = (uintptr_t)m + i;
    feclearexcept(FE_ALL_EXCEPT);
    m->rounding = roundings[rng() % 4];
    m->raised = exceptions[rng() % 5];
    m->x87 = rng() % 2;
    fesetround(m->rounding);
    raise_in(m->x87, m->raised);
    for (;;) {
        many_check(m, local);
        m->visits++;
        if (!many_left--)
            to(&m->context, &main_context);
        struct many *next = &many[rng() % MANY];
        if (next != m)
            to(&m->context, &next->context);
    }
}

START_TEST(thousand)
{
    init(_i);
    fesetround(FE_UPWARD);
    feclearexcept(FE_ALL_EXCEPT);
    for (unsigned i = 0; i < MANY; i++)
        make(&many[i].context, many_entry, &many[i]);
    many_left = 200000;
    to(&main_context, &many[0].context);
    ck_assert_int_eq(fegetround(), FE_UPWARD);
    ck_assert_int_eq(fetestexcept(FE_ALL_EXCEPT), 0);
    for (unsigned i = 0; i < MANY; i++)
        ck_assert_uint_gt(many[i].visits, 0);
}
END_TEST

static int inherited;

static void inherited_entry(void *arg)
{
    struct many *m = arg;

    inherited = fegetround() == FE_DOWNWARD && (mxcsr() & 0x6000) == 0x2000 && fetestexcept(FE_ALL_EXCEPT) == FE_DIVBYZERO;
    to(&m->context, &main_context);
}

START_TEST(environment_of_creator)
{
    init(_i);
    fesetround(FE_DOWNWARD);
    feclearexcept(FE_ALL_EXCEPT);
    feraiseexcept(FE_DIVBYZERO);
    make(&many[0].context, inherited_entry, &many[0]);
    fesetround(FE_TONEAREST);
    feclearexcept(FE_ALL_EXCEPT);
    to(&main_context, &many[0].context);
    ck_assert(inherited);
    ck_assert_int_eq(fegetround(), FE_TONEAREST);
    ck_assert_int_eq(fetestexcept(FE_ALL_EXCEPT), 0);
}
END_TEST

/* --- thread pointer --------------------------------------------------------------------------------- */

static void *(*allocate_tls)(void *);

/* A thread control block with TLS; what the C library's code needs to run on it is copied from the caller's.
 */
static void *new_tcb(void)
{
    char *tcb;

    if (!allocate_tls)
        *(void **)&allocate_tls = dlsym(RTLD_DEFAULT, "_dl_allocate_tls");
    if (!allocate_tls || !(tcb = allocate_tls(NULL)))
        return NULL;
    memcpy(tcb, &tcb, 8);                                /* tcb */
    memcpy(tcb + 0x10, &tcb, 8);                         /* self */
    memcpy(tcb + 0x28, (char *)vt_arch_tp() + 0x28, 16); /* stack guard, pointer guard */
    return tcb;
}

static __thread int tls_value = 42;

static struct own {
    struct vt_context context;
    void *tp;
} own[16], main_own;

/* Not inlined, so that the addresses are computed anew at each call. */
static __attribute__((noinline)) int *errno_address(void)
{
    __asm__ volatile("");
    return &errno;
}

static __attribute__((noinline)) int *tls_address(void)
{
    __asm__ volatile("");
    return &tls_value;
}

static void own_entry(void *arg)
{
    struct own *o = arg;
    int n = (int)(o - own);
    int *address = tls_address();

    if (*address != 42)
        abort();
    *address = n;
    errno = 1000 + n;
    for (;;) {
        struct own *next = n == 15 ? &main_own : &own[n + 1];

        vt_context_switch(&o->context, &next->context, next->tp);
        if (vt_arch_tp() != o->tp || tls_address() != address || *address != n || errno != 1000 + n)
            abort();
    }
}

START_TEST(own_tls)
{
    init(_i);
    main_own.tp = vt_arch_tp();
    for (unsigned i = 0; i < 16; i++) {
        own[i].tp = new_tcb();
        if (!own[i].tp)
            return; /* another C library */
        make(&own[i].context, own_entry, &own[i]);
    }
    errno = 7;
    for (unsigned i = 0; i < 1000; i++) {
        vt_context_switch(&main_own.context, &own[0].context, own[0].tp);
        ck_assert_ptr_eq(vt_arch_tp(), main_own.tp);
        ck_assert_int_eq(errno, 7);
        ck_assert_int_eq(*tls_address(), 42);
    }
    vt_arch_set_tp(own[3].tp);
    int e = *errno_address(), v = *tls_address();
    void *tp = vt_arch_tp();
    vt_arch_set_tp(main_own.tp);
    ck_assert_ptr_eq(tp, own[3].tp);
    ck_assert_int_eq(e, 1003);
    ck_assert_int_eq(v, 3);
}
END_TEST

/* --- other kernel threads --------------------------------------------------------------------------- */

#define MOVES 20000

static struct {
    struct vt_context context;
    struct vt_context *back; /* the kernel thread that runs it */
    pthread_mutex_t lock;
    unsigned count;
    pid_t last;
    unsigned moves;
} wanderer = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void wanderer_entry(void *arg)
{
    (void)arg;
    for (;;) {
        wanderer.count++;
        if (gettid() != wanderer.last)
            wanderer.moves++;
        wanderer.last = gettid();
        to(&wanderer.context, wanderer.back);
    }
}

static void *wanderer_carrier(void *arg)
{
    struct vt_context here;

    for (unsigned i = 0; i < MOVES; i++) {
        pthread_mutex_lock(&wanderer.lock);
        wanderer.back = &here;
        to(&here, &wanderer.context);
        pthread_mutex_unlock(&wanderer.lock);
    }
    return arg;
}

START_TEST(moves_between_kernel_threads)
{
    pthread_t t[4];

    init(_i);
    make(&wanderer.context, wanderer_entry, NULL);
    for (unsigned i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&t[i], NULL, wanderer_carrier, NULL), 0);
    for (unsigned i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_join(t[i], NULL), 0);
    ck_assert_uint_eq(wanderer.count, 4 * MOVES);
    ck_assert_uint_ge(wanderer.moves, 4);
}
END_TEST

/* --- unwinding -------------------------------------------------------------------------------------- */

struct trace {
    unsigned depth;
    uintptr_t function[64];
    uintptr_t rbx[64];
    uintptr_t cfa[64];
    _Unwind_Reason_Code end;
};

static _Unwind_Reason_Code trace_frame(struct _Unwind_Context *c, void *arg)
{
    struct trace *t = arg;

    if (t->depth == 64)
        return _URC_NORMAL_STOP;
    t->function[t->depth] = _Unwind_GetRegionStart(c);
    t->cfa[t->depth] = _Unwind_GetCFA(c);
    t->rbx[t->depth++] = _Unwind_GetGR(c, 3);
    return _URC_NO_REASON;
}

static struct trace trace;

static __attribute__((noinline)) void take_trace(struct trace *t)
{
    memset(t, 0, sizeof(*t));
    t->end = _Unwind_Backtrace(trace_frame, t);
}

static __attribute__((noinline)) void dig(unsigned depth, struct vt_context *c)
{
    volatile char room[100];

    room[0] = (char)depth;
    if (depth)
        dig(depth - 1, c);
    else {
        take_trace(&trace);
        to(c, &main_context);
    }
    room[99] = room[0];
}

static void trace_entry(void *arg)
{
    dig(10, arg);
    abort();
}

static int find(const struct trace *t, uintptr_t function)
{
    for (unsigned i = 0; i < t->depth; i++)
        if (t->function[i] == function)
            return (int)i;
    return -1;
}

START_TEST(backtrace_ends_at_entry)
{
    init(_i);
    make(&other_context, trace_entry, &other_context);
    to(&main_context, &other_context);
    ck_assert_int_eq(trace.end, _URC_END_OF_STACK);
    int at = find(&trace, (uintptr_t)trace_entry);
    ck_assert_int_ge(at, 12);
    /* Below it, only the frames in which contexts begin. */
    ck_assert_uint_le(trace.depth - (unsigned)at, 4);
}
END_TEST

#ifdef HAVE_LIBUNWIND
START_TEST(parked_context_unwinds)
{
    unw_context_t uc;
    unw_cursor_t cursor;
    unsigned digs = 0, entries = 0, depth = 0;
    int more;

    init(_i);
    make(&other_context, trace_entry, &other_context);
    for (int started = 0; started < 2; started++) {
        vt_context_export(&other_context, &uc);
        ck_assert_int_eq(unw_init_local(&cursor, &uc), 0);
        depth = 0;
        do {
            unw_proc_info_t info;

            if (unw_get_proc_info(&cursor, &info) == 0) {
                digs += info.start_ip == (uintptr_t)dig;
                entries += info.start_ip == (uintptr_t)trace_entry;
            }
            depth++;
            more = unw_step(&cursor);
        } while (more > 0 && depth < 64);
        ck_assert_int_eq(more, 0);
        if (!started) {
            ck_assert_uint_eq(entries, 0);
            ck_assert_uint_le(depth, 3);
            to(&main_context, &other_context);
        }
    }
    ck_assert_uint_eq(digs, 11);
    ck_assert_uint_eq(entries, 1);
}
END_TEST
#endif

/* Traps after each instruction of the switch and unwinds there. */
static struct {
    volatile unsigned inside; /* instructions of the switch seen on each side */
    volatile unsigned from_main, from_other, wrong;
} step;

static uintptr_t other_stack;

static void on_trap(int sig, siginfo_t *info, void *arg)
{
    ucontext_t *uc = arg;
    struct trace t;
    uintptr_t rsp = (uintptr_t)uc->uc_mcontext.gregs[REG_RSP];

    (void)sig;
    (void)info;
    take_trace(&t);
    int at = find(&t, (uintptr_t)vt_context_switch_fn);
    if (at < 0)
        return;
    step.inside++;
    bool on_other = rsp > other_stack && rsp <= other_stack + STACK_SIZE;
    unsigned up = (unsigned)at + 1;
    if (t.end != _URC_END_OF_STACK || t.function[up] != (uintptr_t)switch_with_registers) {
        step.wrong++;
        return;
    }
    if (on_other) {
        step.from_other++;
        if (t.rbx[up] < 1000 || t.rbx[up] > 2000 || t.function[up + 1] != (uintptr_t)registers_entry)
            step.wrong++;
    } else {
        step.from_main++;
        if (t.rbx[up] != 0x77 || find(&t, (uintptr_t)registers_entry) >= 0)
            step.wrong++;
    }
}

START_TEST(every_instruction_unwinds)
{
    struct sigaction sa = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    char *s = new_stack();

    init(_i);
    if (is_generic())
        return; /* the C library's code */
    other_stack = (uintptr_t)s;
    vt_context_make(&other_context, s, s + STACK_SIZE, registers_entry, NULL);
    to(&main_context, &other_context);
    take_trace(&trace); /* the unwinder's first call allocates */
    ck_assert_int_eq(sigaction(SIGTRAP, &sa, NULL), 0);
    /* rflags is not part of a context: stepping goes on on the other side, until that restores the flags. */
    ck_assert_int_eq(switch_with_registers(&main_context, &other_context, vt_arch_tp(), 0x77, RFLAGS_TRAP), 0);
    unsigned there = step.inside;
    ck_assert_uint_ge(there, 20);
    ck_assert_uint_ge(step.from_main, 8);
    ck_assert_uint_ge(step.from_other, 8);
    ck_assert_uint_eq(step.wrong, 0);
}
END_TEST

static int caught;

static void park_once(void)
{
    to(&other_context, &main_context);
}

static void cxx_entry(void *arg)
{
    (void)arg;
    caught = throw_and_catch(5);
    caught += throw_through(park_once);
    to(&other_context, &main_context);
}

START_TEST(exceptions)
{
    init(_i);
    make(&other_context, cxx_entry, NULL);
    to(&main_context, &other_context);
    ck_assert_int_eq(caught, 5);
    /* It is parked inside a catch block; meanwhile another one throws. */
    ck_assert_int_eq(throw_and_catch(6), 6);
    to(&main_context, &other_context);
    ck_assert_int_eq(caught, 5 + 100);
}
END_TEST

static void uncaught_entry(void *arg)
{
    (void)arg;
    throw_uncaught();
}

/* std::terminate, called by the unwinder when it has come to the end of the stack; the handler exits with 7.
 */
START_TEST(uncaught_exception)
{
    init(_i);
    make(&other_context, uncaught_entry, NULL);
    to(&main_context, &other_context);
}
END_TEST

static struct _Unwind_Exception forced;
static bool forced_end;

static _Unwind_Reason_Code stop(int version, _Unwind_Action actions, _Unwind_Exception_Class class, struct _Unwind_Exception *e,
                                struct _Unwind_Context *c, void *arg)
{
    (void)version;
    (void)class;
    (void)e;
    (void)c;
    (void)arg;
    if (actions & _UA_END_OF_STACK) {
        forced_end = true;
        to(&other_context, &main_context);
        abort();
    }
    return _URC_NO_REASON;
}

static void force(void)
{
    _Unwind_ForcedUnwind(&forced, stop, NULL);
    abort();
}

int cleanups;

static void forced_entry(void *arg)
{
    (void)arg;
    cleanups_run(force);
    abort();
}

START_TEST(forced_unwinding)
{
    init(_i);
    make(&other_context, forced_entry, NULL);
    to(&main_context, &other_context);
    ck_assert(forced_end);
    ck_assert_int_eq(cleanups, 3);
}
END_TEST

/* --- cost ------------------------------------------------------------------------------------------- */

static struct vt_context ping, pong;
static unsigned long ping_left;
static void *cost_tp;

static void ping_entry(void *arg)
{
    (void)arg;
    for (;;) {
        if (!ping_left--)
            vt_context_switch(&ping, &main_context, cost_tp);
        vt_context_switch(&ping, &pong, cost_tp);
    }
}

static void pong_entry(void *arg)
{
    (void)arg;
    for (;;)
        vt_context_switch(&pong, &ping, cost_tp);
}

/* Asserts nothing: a number for the log. */
START_TEST(cost)
{
    struct timespec a, b;
    unsigned long n = is_generic() ? 100000 : 2000000;
    double best = 1e9;

    init(_i);
    cost_tp = vt_arch_tp();
    make(&ping, ping_entry, NULL);
    make(&pong, pong_entry, NULL);
    for (int round = 0; round < 5; round++) {
        ping_left = n / 2;
        clock_gettime(CLOCK_MONOTONIC, &a);
        vt_context_switch(&main_context, &ping, cost_tp);
        clock_gettime(CLOCK_MONOTONIC, &b);
        double ns = ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / (double)n;
        if (ns < best)
            best = ns;
    }
    printf("%s, %s: switch %.1f ns\n", vt_arch_name, _i ? "vt_arch_init" : "before vt_arch_init", best);
}
END_TEST

int main(void)
{
    Suite *s = suite_create(vt_arch_name);
    TCase *c = tcase_create("arch");

    tcase_set_timeout(c, 600); /* a switch takes 3 us where it needs a system call, and that takes long */
    tcase_add_loop_test(c, entry, 0, 2);
    tcase_add_loop_test(c, registers, 0, 2);
    tcase_add_loop_test(c, exported, 0, 2);
    tcase_add_loop_test(c, thousand, 0, 2);
    tcase_add_loop_test(c, environment_of_creator, 0, 2);
    tcase_add_loop_test(c, own_tls, 0, 2);
    tcase_add_loop_test(c, moves_between_kernel_threads, 0, 2);
    tcase_add_loop_test(c, backtrace_ends_at_entry, 0, 2);
#ifdef HAVE_LIBUNWIND
    tcase_add_loop_test(c, parked_context_unwinds, 0, 2);
#endif
    tcase_add_loop_test(c, every_instruction_unwinds, 0, 2);
    tcase_add_loop_test(c, exceptions, 0, 2);
    tcase_add_loop_exit_test(c, uncaught_exception, 7, 0, 2);
    tcase_add_loop_test(c, forced_unwinding, 0, 2);
    tcase_add_loop_test(c, cost, 0, 2);
    suite_add_tcase(s, c);

    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
