#include "tcb.h"

#include "arch.h"
#include "symtab.h"

#include <check.h>
#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <locale.h>
#include <malloc.h>
#include <netdb.h>
#include <pthread.h>
#include <resolv.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if !__GLIBC_PREREQ(2, 33)
#define mallinfo2 mallinfo
#endif

#define STACK (64 << 10)
#define TID   VT_TCB_TID_MIN

extern int __cxa_thread_atexit_impl(void (*)(void *), void *, void *);
extern void *__dso_handle;

/* --- threads of one kernel thread, or of several --- */

struct thread {
    struct vt_context ctx;
    void *tp;
    char *mem;
    size_t mem_size;
    void (*body)(struct thread *);
    void *arg;
    unsigned index;
    bool done;
    struct thread *next;
};

/* Whoever runs threads: its own context to come back to. */
struct runner {
    struct vt_context ctx;
    void *tp;
};

/* The runner of a thread, kept on its stack's side: the thread's own TLS has no use for a pointer to
 * another's. */
static struct runner *runner_of[4096];

static void start(void *arg)
{
    struct thread *t = arg;
    vt_tcb_enter();
    t->body(t);
    vt_tcb_leave();
    t->done = true;
    struct vt_context dead;
    struct runner *r = runner_of[t->index];
    vt_context_switch(&dead, &r->ctx, r->tp);
    abort();
}

static void yield(struct thread *t)
{
    struct runner *r = runner_of[t->index];
    vt_context_switch(&t->ctx, &r->ctx, r->tp);
}

static void run(struct runner *r, struct thread *t)
{
    r->tp = vt_arch_tp();
    runner_of[t->index] = r;
    vt_context_switch(&r->ctx, &t->ctx, t->tp);
}

static void prepare(struct thread *t, unsigned index, void (*body)(struct thread *), void *arg)
{
    if (!t->mem) {
        t->mem_size = STACK + ((vt_tcb_size() + 4095) & ~4095ul);
        t->mem = mmap(NULL, t->mem_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ck_assert_ptr_ne(t->mem, MAP_FAILED);
        ck_assert_int_eq(vt_tcb_make(t->mem + t->mem_size, TID + index, &t->tp), 0);
    } else
        vt_tcb_reset(t->tp, TID + index);
    t->index = index;
    t->body = body;
    t->arg = arg;
    t->done = false;
    vt_tcb_set_stack(t->tp, t->mem, t->mem + STACK, 0);
    vt_context_make(&t->ctx, t->mem, t->mem + STACK, start, t);
}

static void finish(struct thread *t)
{
    vt_tcb_free(t->tp);
    munmap(t->mem, t->mem_size);
    memset(t, 0, sizeof(*t));
}

static void run_once(struct thread *t, void (*body)(struct thread *), void *arg)
{
    struct runner r;
    prepare(t, 0, body, arg);
    run(&r, t);
    ck_assert(t->done);
}

static void init(void)
{
    ck_assert_msg(vt_tcb_init() == 0, "%s", vt_tcb_why());
    vt_arch_init();
}

/* --- what a thread sees --- */

static __thread int word = 42;
static __thread char text[16] = "initial";
static __thread long zero[8];

START_TEST(finds_out)
{
    ck_assert_int_eq(vt_tcb_init(), 0);
    ck_assert_str_eq(vt_tcb_why(), "");
    ck_assert_uint_eq(vt_tcb_size() % 64, 0);
    ck_assert_uint_ge(vt_tcb_size(), 2048);
    ck_assert_uint_ge(vt_tcb_align(), 64);
    ck_assert(!vt_tcb_exec_stack());
    ck_assert_int_eq(vt_tcb_init(), 0);
}
END_TEST

static void *init_thread(void *arg)
{
    *(int *)arg = vt_tcb_init();
    return NULL;
}

START_TEST(finds_out_on_another_thread)
{
    pthread_t t;
    int ret = -1;
    ck_assert_int_eq(pthread_create(&t, NULL, init_thread, &ret), 0);
    pthread_join(t, NULL);
    ck_assert_int_eq(ret, 0);
}
END_TEST

START_TEST(aligns)
{
    init();
    char *mem = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(mem, 0xa5, 65536);
    for (size_t off = 0; off < 256; off += 8) {
        void *tp;
        char *top = mem + 65536 - 256 + off;
        ck_assert_int_eq(vt_tcb_make(top, TID, &tp), 0);
        ck_assert_uint_eq((uintptr_t)tp % vt_tcb_align(), 0);
        ck_assert_uint_le((uintptr_t)tp + 2048, (uintptr_t)top);
        vt_tcb_free(tp);
        /* Nothing is written above the top, or below what was asked for. */
        ck_assert_int_eq((unsigned char)top[0], 0xa5);
        memset(top - vt_tcb_size() - 64, 0xa5, vt_tcb_size() + 64);
    }
    for (size_t i = 0; i < 65536 - 256 - vt_tcb_size() - 64; i++)
        ck_assert_int_eq((unsigned char)mem[i], 0xa5);
}
END_TEST

static void looks_new(struct thread *t)
{
    ck_assert_int_eq(errno, 0);
    ck_assert_int_eq(h_errno, 0);
    ck_assert_int_eq(word, 42);
    ck_assert_str_eq(text, "initial");
    for (int i = 0; i < 8; i++)
        ck_assert_int_eq(zero[i], 0);
    ck_assert(isalpha('a') && !isalpha('1') && toupper('x') == 'X');
    ck_assert_ptr_eq(uselocale(NULL), LC_GLOBAL_LOCALE);
    ck_assert_ptr_null(dlerror());
    ck_assert_ptr_eq((void *)pthread_self(), t->tp);
    ck_assert_uint_eq(vt_tcb_tid(t->tp), TID + t->index);
    ck_assert_int_eq(atomic_load(vt_tcb_cancelhandling(t->tp)), 0);
    ck_assert_ptr_null(*vt_tcb_cleanup_jmp_buf(t->tp));
    ck_assert_int_eq(_res.nscount, 0);
    ck_assert_uint_eq(_res.options, 0);
    int cpu = sched_getcpu();
    ck_assert_int_ge(cpu, 0);
    ck_assert_int_lt(cpu, (int)sysconf(_SC_NPROCESSORS_CONF));
    int state;
    ck_assert_int_eq(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state), 0);
    ck_assert_int_eq(state, PTHREAD_CANCEL_ENABLE);
    ck_assert_int_eq(pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &state), 0);
    ck_assert_int_eq(state, PTHREAD_CANCEL_DEFERRED);
}

static pthread_key_t some_key, far_key;

static void uses_everything(struct thread *t)
{
    looks_new(t);
    errno = 4 + (int)t->index;
    h_errno = 3;
    word = 1;
    strcpy(text, "spoilt");
    memset(zero, 0xff, sizeof(zero));
    ck_assert_int_eq(pthread_setspecific(some_key, t), 0);
    ck_assert_int_eq(pthread_setspecific(far_key, t), 0);
    locale_t c = newlocale(LC_ALL_MASK, "C.UTF-8", NULL);
    if (!c)
        c = newlocale(LC_ALL_MASK, "C", NULL);
    uselocale(c); /* and stays */
    ck_assert_ptr_null(dlopen("/nonexistent.so", RTLD_NOW));
    ck_assert_int_eq(res_init(), 0);
    _res.options |= RES_DEBUG;
    atomic_fetch_or(vt_tcb_cancelhandling(t->tp), 4 + 8 + 16);
    ck_assert_str_eq(strerror(12345), "Unknown error 12345");
    free(malloc(100));
}

START_TEST(reset_is_new)
{
    init();
    ck_assert_int_eq(pthread_key_create(&some_key, NULL), 0);
    /* In the second block, which libc allocates. */
    for (int i = 0; i < 40; i++)
        ck_assert_int_eq(pthread_key_create(&far_key, NULL), 0);
    struct thread t = {0};
    for (int i = 0; i < 100; i++) {
        run_once(&t, uses_everything, NULL);
        prepare(&t, 0, looks_new, NULL);
        struct runner r;
        run(&r, &t);
    }
    ck_assert_int_eq(vt_tcb_renew(t.tp, TID + 7), 0);
    ck_assert_uint_eq(vt_tcb_tid(t.tp), TID + 7);
    run_once(&t, uses_everything, NULL);
    finish(&t);
}
END_TEST

/* --- many, on several kernel threads --- */

#define MANY    2000
#define ROUNDS  20
#define RUNNERS 3

static struct thread many[MANY];
static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static struct thread *queue_first, **queue_last = &queue_first;
static unsigned queue_left;

static void enqueue(struct thread *t)
{
    t->next = NULL;
    pthread_mutex_lock(&queue_lock);
    *queue_last = t;
    queue_last = &t->next;
    pthread_mutex_unlock(&queue_lock);
}

static struct thread *dequeue(bool *over)
{
    pthread_mutex_lock(&queue_lock);
    struct thread *t = queue_first;
    if (t) {
        queue_first = t->next;
        if (!queue_first)
            queue_last = &queue_first;
    }
    *over = queue_left == 0;
    pthread_mutex_unlock(&queue_lock);
    return t;
}

static void *run_many(void *arg)
{
    (void)arg;
    struct runner r;
    for (;;) {
        bool over;
        struct thread *t = dequeue(&over);
        if (!t) {
            if (over)
                return NULL;
            sched_yield();
            continue;
        }
        run(&r, t);
        if (t->done) {
            pthread_mutex_lock(&queue_lock);
            queue_left--;
            pthread_mutex_unlock(&queue_lock);
        } else
            enqueue(t);
    }
}

static int *volatile errno_of[MANY];

/* errno's address is found again after each yield, as in code that is not inlined; its value must be the own.
 */
static void lives(struct thread *t)
{
    unsigned n = t->index;
    char *block[8] = {0};
    looks_new(t);
    errno_of[n] = &errno;
    int *word_at = &word;
    for (unsigned round = 0; round < ROUNDS; round++) {
        errno = (int)(n + round);
        word = (int)(n * 3 + round);
        snprintf(text, sizeof(text), "%u.%u", n, round);
        unsigned i = (n + round) % 8;
        size_t size = 16 + (n * 7 + round * 131) % 3000;
        free(block[i]);
        block[i] = malloc(size);
        memset(block[i], (int)(n & 0x7f), size);
        block[i][size - 1] = 0;
        char list[] = "a,b;c", *save, *token = strtok_r(list, ",;", &save);

        yield(t);

        ck_assert_ptr_eq(errno_of[n], &errno);
        ck_assert_ptr_eq(word_at, &word);
        ck_assert_int_eq(errno, (int)(n + round));
        ck_assert_int_eq(word, (int)(n * 3 + round));
        char expected[16];
        snprintf(expected, sizeof(expected), "%u.%u", n, round);
        ck_assert_str_eq(text, expected);
        ck_assert_uint_eq(strlen(block[i]), (n & 0x7f) ? size - 1 : 0);
        ck_assert_str_eq(token, "a");
        ck_assert_str_eq(strtok_r(NULL, ",;", &save), "b");
        block[i] = realloc(block[i], size * 2);
        ck_assert_ptr_nonnull(block[i]);
        time_t when = 86400 * (time_t)n;
        struct tm tm;
        ck_assert_ptr_nonnull(localtime_r(&when, &tm));
        ck_assert_ptr_nonnull(localtime(&when));
        errno = ENOENT;
        ck_assert_str_eq(strerror(errno), "No such file or directory");
        ck_assert(isdigit('7'));
    }
    for (int i = 0; i < 8; i++)
        free(block[i]);
}

START_TEST(many_on_three)
{
    init();
    for (int life = 0; life < 3; life++) {
        queue_left = MANY;
        for (unsigned i = 0; i < MANY; i++) {
            prepare(&many[i], i, lives, NULL);
            enqueue(&many[i]);
        }
        pthread_t runner[RUNNERS];
        for (int i = 0; i < RUNNERS; i++)
            ck_assert_int_eq(pthread_create(&runner[i], NULL, run_many, NULL), 0);
        for (int i = 0; i < RUNNERS; i++)
            pthread_join(runner[i], NULL);
        for (unsigned i = 0; i < MANY; i++)
            ck_assert(many[i].done);
    }
    for (unsigned i = 0; i < MANY; i++)
        finish(&many[i]);
}
END_TEST

/* --- memory --- */

static size_t resident(void)
{
    size_t size = 0, pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    ck_assert_int_eq(fscanf(f, "%zu %zu", &size, &pages), 2);
    fclose(f);
    return pages * 4096;
}

/* Texts that strerror makes are lost with a TCB; one that is used again keeps them. */
static bool texts;

static void allocates(struct thread *t)
{
    if (texts)
        strerror(999);
    void *p[20];
    for (int i = 0; i < 20; i++)
        p[i] = malloc(24 + 40 * (size_t)i);
    for (int i = 0; i < 20; i++)
        free(p[i]);
    pthread_setspecific(far_key, p);
    errno = 1;
    getentropy(p, 8);
    /* An error that was not asked for, and one that was overtaken by a success. */
    dlsym(RTLD_DEFAULT, "there is no such symbol");
    if (t->arg)
        dlsym(RTLD_DEFAULT, "malloc");
}

START_TEST(reset_keeps_memory)
{
    init();
    for (int i = 0; i < 40; i++)
        ck_assert_int_eq(pthread_key_create(&far_key, NULL), 0);
    struct thread t = {0};
    texts = true;
    for (int i = 0; i < 1000; i++)
        run_once(&t, allocates, i % 2 ? &t : NULL);
    struct mallinfo2 before = mallinfo2();
    size_t rss = resident();
    for (int i = 0; i < 100000; i++)
        run_once(&t, allocates, i % 2 ? &t : NULL);
    struct mallinfo2 after = mallinfo2();
    ck_assert_uint_le(after.arena, before.arena + 65536);
    ck_assert_uint_le(after.uordblks, before.uordblks + 16384);
    ck_assert_uint_le(resident(), rss + (1 << 20));
    finish(&t);
}
END_TEST

START_TEST(free_keeps_memory)
{
    init();
    for (int i = 0; i < 40; i++)
        ck_assert_int_eq(pthread_key_create(&far_key, NULL), 0);
    struct thread t = {0};
    for (int i = 0; i < 100; i++) {
        run_once(&t, allocates, i % 2 ? &t : NULL);
        finish(&t);
    }
    size_t rss = resident();
    for (int i = 0; i < 20000; i++) {
        run_once(&t, allocates, i % 2 ? &t : NULL);
        if (i % 4 < 2)
            vt_tcb_free(t.tp);
        else
            vt_tcb_drop(t.tp);
        ck_assert_int_eq(vt_tcb_make(t.mem + t.mem_size, TID, &t.tp), 0);
    }
    ck_assert_uint_le(resident(), rss + (1 << 20));
    finish(&t);
}
END_TEST

/* --- the end of a thread --- */

static char log_text[4096];

static void note(const char *what, int n)
{
    size_t used = strlen(log_text);
    snprintf(log_text + used, sizeof(log_text) - used, "%s%d ", what, n);
}

static pthread_key_t keys[80];

static void destroyed(void *value)
{
    note("k", (int)(intptr_t)value);
}

static void sets_again(void *value)
{
    note("again", (int)(intptr_t)value);
    pthread_setspecific(keys[1], (void *)((intptr_t)value + 1));
    if (pthread_getspecific(keys[70]) == NULL)
        pthread_setspecific(keys[70], (void *)70);
}

static void tls_destroyed(void *value)
{
    note("tls", (int)(intptr_t)value);
}

static void late_tls_destructor(void *value)
{
    note("late", (int)(intptr_t)value);
    __cxa_thread_atexit_impl(tls_destroyed, (void *)1000, &__dso_handle);
}

static void scenario(void)
{
    __cxa_thread_atexit_impl(tls_destroyed, (void *)1, &__dso_handle);
    __cxa_thread_atexit_impl(tls_destroyed, (void *)2, &__dso_handle);
    pthread_setspecific(keys[0], (void *)10);
    pthread_setspecific(keys[1], (void *)20);
    pthread_setspecific(keys[2], (void *)30);
    pthread_setspecific(keys[3], (void *)40);
    pthread_setspecific(keys[60], (void *)50);
    pthread_setspecific(keys[61], (void *)60);
    pthread_setspecific(keys[62], NULL);
    /* Deleted, and made again by somebody else: its destructor is not this value's. */
    pthread_key_delete(keys[61]);
    pthread_key_create(&keys[61], destroyed);
}

static void *native_scenario(void *arg)
{
    (void)arg;
    scenario();
    return NULL;
}

static void virtual_scenario(struct thread *t)
{
    (void)t;
    for (int i = 0; i < 80; i++)
        ck_assert_ptr_null(pthread_getspecific(keys[i]));
    scenario();
}

START_TEST(destructors_as_native)
{
    init();
    for (int i = 0; i < 80; i++)
        pthread_key_create(&keys[i], i == 1 ? sets_again : i == 3 ? late_tls_destructor : i == 2 ? NULL : destroyed);
    char native[sizeof(log_text)];
    pthread_t p;
    pthread_create(&p, NULL, native_scenario, NULL);
    pthread_join(p, NULL);
    memcpy(native, log_text, sizeof(native));
    ck_assert_ptr_nonnull(strstr(native, "tls2 tls1 k10 again20 late40 k50 "));
    struct thread t = {0};
    for (int i = 0; i < 3; i++) {
        log_text[0] = 0;
        run_once(&t, virtual_scenario, NULL);
        ck_assert_str_eq(log_text, native);
    }
    finish(&t);
}
END_TEST

/* --- modules --- */

struct module {
    void *handle;
    int (*initial)(void);
    void (*spoil)(void);
    int *seen;
};

static void load(struct module *m, const char *name)
{
    m->handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    ck_assert_msg(m->handle != NULL, "%s", dlerror());
    *(void **)&m->initial = dlsym(m->handle, "tls_initial");
    *(void **)&m->spoil = dlsym(m->handle, "tls_spoil");
    m->seen = dlsym(m->handle, "tls_seen_by_constructor");
}

/* Waits for the module, looks at it, spoils it, waits for the next. */
static void looks_at_modules(struct thread *t)
{
    struct module *m = t->arg;
    for (;;) {
        yield(t);
        if (!m->handle)
            return;
        ck_assert_int_eq(m->initial(), 1);
        m->spoil();
        ck_assert_int_eq(m->initial(), 0);
    }
}

#define SLEEPERS 200
#define LOADS    30

static struct module current;

static void load_it(struct thread *t)
{
    bool listed = vt_tcb_list_self(true);
    ck_assert(listed);
    load(&current, t->arg);
    vt_tcb_list_self(false);
    ck_assert_int_eq(*current.seen, 4711);
    /* The constructor has written to it. */
    ck_assert_int_eq(current.initial(), 0);
    vt_tcb_late_tls(t->tp);
    ck_assert_int_eq(current.initial(), 0);
}

static void late_modules(const char *name, bool by_virtual)
{
    init();
    struct runner r;
    static struct thread sleeper[SLEEPERS];
    struct thread loader = {0}, fresh = {0};
    for (unsigned i = 0; i < SLEEPERS; i++) {
        prepare(&sleeper[i], i, looks_at_modules, &current);
        run(&r, &sleeper[i]);
    }
    for (int n = 0; n < LOADS; n++) {
        uint64_t before = vt_tcb_generation();
        if (by_virtual) {
            prepare(&loader, SLEEPERS, load_it, (void *)name);
            run(&r, &loader);
        } else
            load(&current, name);
        ck_assert_uint_ge(vt_tcb_generation(), before);
        for (unsigned i = 0; i < SLEEPERS; i++) {
            vt_tcb_late_tls(sleeper[i].tp);
            run(&r, &sleeper[i]);
            vt_tcb_late_tls(sleeper[i].tp); /* nothing more to do: must not initialise again */
        }
        /* A thread made after it, in new memory and in used memory. */
        struct thread other = {0};
        prepare(&other, SLEEPERS + 1, looks_at_modules, &current);
        run(&r, &other);
        run(&r, &other);
        prepare(&fresh, SLEEPERS + 2, looks_at_modules, &current);
        run(&r, &fresh);
        run(&r, &fresh);
        void *handle = current.handle;
        current.handle = NULL;
        run(&r, &other);
        run(&r, &fresh);
        ck_assert(other.done && fresh.done);
        finish(&other);
        if (n % 2)
            dlclose(handle);
        else {
            bool begun = vt_tcb_dl_begin();
            ck_assert(begun);
            for (unsigned i = 0; i < SLEEPERS; i++)
                ck_assert_int_eq(vt_tcb_list(sleeper[i].tp), 0);
            dlclose(handle);
            vt_tcb_dl_end(begun);
        }
    }
    for (unsigned i = 0; i < SLEEPERS; i++) {
        run(&r, &sleeper[i]);
        ck_assert(sleeper[i].done);
        finish(&sleeper[i]);
    }
}

START_TEST(late_initial_exec)
{
    late_modules(TCB_MOD_IE, false);
}
END_TEST

START_TEST(late_initial_exec_by_virtual)
{
    late_modules(TCB_MOD_IE, true);
}
END_TEST

START_TEST(late_dynamic)
{
    late_modules(TCB_MOD_GD, false);
}
END_TEST

static _Atomic bool stop;

static void *resets(void *arg)
{
    unsigned index = (unsigned)(uintptr_t)arg;
    struct thread t = {0};
    struct runner r;
    for (int i = 0; !atomic_load(&stop); i++) {
        prepare(&t, index, looks_new, NULL);
        run(&r, &t);
        if (i % 16 == 0)
            finish(&t);
    }
    return NULL;
}

START_TEST(modules_come_and_go)
{
    init();
    pthread_t t[2];
    for (uintptr_t i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_create(&t[i], NULL, resets, (void *)i), 0);
    for (int i = 0; i < 3000; i++) {
        bool begun = i % 3 && vt_tcb_dl_begin();
        void *a = dlopen(TCB_MOD_IE, RTLD_NOW), *b = dlopen(TCB_MOD_GD, RTLD_NOW);
        vt_tcb_dl_end(begun);
        begun = i % 2 && vt_tcb_dl_begin();
        dlclose(a);
        dlclose(b);
        vt_tcb_dl_end(begun);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
}
END_TEST

static bool on_libc_list(void *tp)
{
    struct list {
        struct list *next, *prev;
    };
    const uint32_t *d = dlsym(RTLD_DEFAULT, "_thread_db_pthread_list");
    struct vt_symtab symtab;
    vt_symtab_open(&symtab);
    if (!d)
        d = vt_symtab_find(&symtab, "_thread_db_pthread_list");
    vt_symtab_close(&symtab);
    struct list *l = (struct list *)((char *)tp + d[2]);
    ck_assert_ptr_eq(l->next->prev, l);
    ck_assert_ptr_eq(l->prev->next, l);
    return l->next != l;
}

START_TEST(listing)
{
    init();
    struct thread t[3] = {0};
    prepare(&t[0], 0, looks_new, NULL);
    prepare(&t[1], 1, looks_new, NULL);
    ck_assert(!on_libc_list(t[0].tp));
    ck_assert(vt_tcb_dl_begin());
    ck_assert(vt_tcb_dl_begin());
    ck_assert_int_eq(vt_tcb_list(t[0].tp), 0);
    ck_assert_int_eq(vt_tcb_list(t[0].tp), 0);
    ck_assert(on_libc_list(t[0].tp));
    ck_assert(!on_libc_list(t[1].tp));
    prepare(&t[2], 2, looks_new, NULL);
    ck_assert(on_libc_list(t[2].tp));
    vt_tcb_dl_end(true);
    ck_assert(on_libc_list(t[0].tp));
    vt_tcb_reset(t[1].tp, TID + 9);
    ck_assert(on_libc_list(t[1].tp));
    finish(&t[1]);
    vt_tcb_dl_end(true);
    ck_assert(!on_libc_list(t[0].tp));
    ck_assert(!on_libc_list(t[2].tp));
    prepare(&t[1], 1, looks_new, NULL);
    ck_assert(!on_libc_list(t[1].tp));
}
END_TEST

static struct module initialised_by_libc;

START_TEST(libc_initialises_listed)
{
    init();
    struct runner r;
    struct thread t = {0};
    prepare(&t, 0, looks_at_modules, &initialised_by_libc);
    run(&r, &t);
    bool begun = vt_tcb_dl_begin();
    vt_tcb_list(t.tp);
    load(&initialised_by_libc, TCB_MOD_IE);
    /* Before the end: only libc can have done it. */
    run(&r, &t);
    vt_tcb_dl_end(begun);
    /* It has spoilt its copy; that is not undone. */
    vt_tcb_late_tls(t.tp);
    long *(*address)(void);
    *(void **)&address = dlsym(initialised_by_libc.handle, "tls_address");
    ptrdiff_t offset = (char *)address() - (char *)vt_arch_tp();
    ck_assert_int_eq(*(long *)((char *)t.tp + offset), 99);
}
END_TEST

/* --- fork ---
 */

static void forks(struct thread *t)
{
    struct thread *others = t->arg;
    bool begun = vt_tcb_dl_begin(); /* as if a dlopen were going on elsewhere */
    vt_tcb_list(others[0].tp);
    pid_t pid = fork();
    if (pid != 0) {
        vt_tcb_dl_end(begun);
        int status;
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert_int_eq(status, 0);
        return;
    }
    vt_tcb_fork_child();
    vt_tcb_forked(t->tp, TID + 49, NULL);
    struct runner r;
    for (int i = 0; i < 2; i++) {
        if (vt_tcb_renew(others[i].tp, TID + 50) != 0 || on_libc_list(others[i].tp))
            _exit(2);
        others[i].index = 50;
        others[i].body = looks_new;
        vt_context_make(&others[i].ctx, others[i].mem, others[i].mem + STACK, start, &others[i]);
        run(&r, &others[i]);
        if (!others[i].done)
            _exit(3);
    }
    struct module m;
    if (!vt_tcb_list_self(true))
        _exit(4);
    load(&m, TCB_MOD_IE);
    vt_tcb_list_self(false);
    if (*m.seen != 4711)
        _exit(5);
    _exit(0);
}

START_TEST(forks_and_goes_on)
{
    init();
    struct thread others[2] = {0}, t = {0};
    struct runner r;
    for (unsigned i = 0; i < 2; i++) {
        prepare(&others[i], 10 + i, looks_at_modules, &current);
        run(&r, &others[i]);
    }
    run_once(&t, forks, others);
}
END_TEST

/* --- robust mutexes, guards --- */

static void robust_errorcheck(struct thread *t)
{
    (void)t;
    pthread_mutexattr_t attr;
    pthread_mutex_t m[3];
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    for (int i = 0; i < 3; i++) {
        pthread_mutex_init(&m[i], &attr);
        ck_assert_int_eq(pthread_mutex_lock(&m[i]), 0);
        ck_assert_int_eq(pthread_mutex_lock(&m[i]), EDEADLK);
    }
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(pthread_mutex_unlock(&m[(i + 1) % 3]), 0);
}

START_TEST(robust_list)
{
    init();
    struct thread t = {0};
    for (int i = 0; i < 3; i++)
        run_once(&t, robust_errorcheck, NULL);
    finish(&t);
}
END_TEST

static void __attribute__((noinline, optimize("stack-protector-all"))) protected(struct thread *t)
{
    char buf[64];
    snprintf(buf, sizeof(buf), "%u", t->index);
    yield(t);
    ck_assert_int_eq(atoi(buf), (int)t->index);
}

START_TEST(guards)
{
    init();
    struct runner r;
    struct thread t[2] = {0};
    for (unsigned i = 0; i < 2; i++) {
        prepare(&t[i], i, protected, NULL);
        run(&r, &t[i]);
    }
    for (unsigned i = 0; i < 2; i++) {
        run(&r, &t[i]);
        ck_assert(t[i].done);
    }
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

/* Best of several, for what other processes do to a clock. No bound is asserted: it would fail under load. */
#define COST(name, n, statement)                                                                                               \
    do {                                                                                                                       \
        double best = 1e18;                                                                                                    \
        for (int turn = 0; turn < 5; turn++) {                                                                                 \
            double begin = now();                                                                                              \
            for (int i = 0; i < (n); i++)                                                                                      \
                statement;                                                                                                     \
            double took = (now() - begin) / (n);                                                                               \
            best = took < best ? took : best;                                                                                  \
        }                                                                                                                      \
        printf("  %-28s %8.1f ns\n", name, best);                                                                              \
    } while (0)

START_TEST(costs)
{
    double begin = now();
    init();
    printf("  %-28s %8.1f ns\n", "init", now() - begin);
    struct thread t = {0};
    prepare(&t, 0, looks_new, NULL);
    COST("reset", 100000, vt_tcb_reset(t.tp, TID));
    COST("free + make", 100000, {
        vt_tcb_free(t.tp);
        vt_tcb_make(t.mem + t.mem_size, TID, &t.tp);
    });
    COST("enter + leave", 100000, {
        vt_tcb_enter();
        vt_tcb_leave();
    });
    COST("generation", 100000, vt_tcb_generation());
    COST("late_tls, nothing to do", 100000, vt_tcb_late_tls(t.tp));
    COST("list_self", 10000, {
        vt_tcb_list_self(true);
        vt_tcb_list_self(false);
    });
}
END_TEST

int main(void)
{
    Suite *s = suite_create("tcb");
    TCase *c = tcase_create("tcb");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, finds_out);
    tcase_add_test(c, finds_out_on_another_thread);
    tcase_add_test(c, aligns);
    tcase_add_test(c, reset_is_new);
    tcase_add_test(c, many_on_three);
    tcase_add_test(c, reset_keeps_memory);
    tcase_add_test(c, free_keeps_memory);
    tcase_add_test(c, destructors_as_native);
    tcase_add_test(c, late_initial_exec);
    tcase_add_test(c, late_initial_exec_by_virtual);
    tcase_add_test(c, late_dynamic);
    tcase_add_test(c, modules_come_and_go);
    tcase_add_test(c, listing);
    tcase_add_test(c, libc_initialises_listed);
    tcase_add_test(c, forks_and_goes_on);
    tcase_add_test(c, robust_list);
    tcase_add_test(c, guards);
    tcase_add_test(c, costs);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
