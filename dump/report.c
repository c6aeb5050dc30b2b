#include "report.h"

#include "engine.h"
#include "sockets.h"
#include "symbols.h"
#include "unwind.h"
#include "waits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct options *options;

static const char *state_name(const struct thread *t)
{
    static const char *const names[] = {"running", "runnable", "parked", "kernel thread"};
    return t->state == STATE_RUNNING && *t->call ? "blocked" : names[t->state];
}

/* How long it is in its state, in seconds; negative: not known. */
static double age(const struct thread *t)
{
    return t->since && target.now >= t->since ? (double)(target.now - t->since) / 1e9 : -1;
}

/* How long its wait goes on at most; negative: without end. */
static double left(const struct thread *t)
{
    if (t->wait == WAIT_NOTHING || t->deadline == UINT64_MAX || !target.now)
        return -1;
    return t->deadline > target.now ? (double)(t->deadline - target.now) / 1e9 : 0;
}

/* --- stacks --------------------------------------------------------------------------------------------- */

/* The frames that are of interest to who knows nothing of the library: from the function that the program has
 * called to its start routine. */
static void visible(const struct stack *s, uint32_t *from, uint32_t *to)
{
    *from = 0;
    *to = s->n;
    if (options->frames)
        return;
    while (*from + 1 < s->n && symbol_of(s->ip[*from])->ours && symbol_of(s->ip[*from + 1])->ours)
        ++*from;
    while (*to > *from + 1 && symbol_of(s->ip[*to - 1])->ours)
        --*to;
    if (*to == *from + 1 && symbol_of(s->ip[*from])->ours)
        *from = *to = 0;
}

static void print_frame(unsigned number, uint64_t ip)
{
    const struct symbol *f = symbol_of(ip);
    printf("    #%-2u %#018lx ", number, ip & ~IP_EXACT);
    if (f->function)
        printf("%s+%#lx", f->function, f->offset);
    else
        printf("??");
    if (f->file)
        printf(" at %s:%d", f->file, f->line);
    else if (f->module && f->function)
        printf(" in %s", f->module);
    else if (f->module)
        printf(" in %s+%#lx", f->module, f->offset);
    putchar('\n');
}

static void print_stack(const struct thread *t)
{
    const struct stack *s = t->stack;
    uint32_t from, to;
    visible(s, &from, &to);
    for (uint32_t i = from; i < to; i++)
        print_frame(i - from, s->ip[i]);
    if (t->virtual && !t->started && t->start)
        printf("    not started; its start routine is %s\n", symbol_of(t->start | IP_EXACT)->function ?: "not known");
    if (s->trouble)
        printf("    INCOMPLETE: %s\n", s->trouble);
}

/* --- text ----------------------------------------------------------------------------------------------- */

static void print_identity(const struct thread *t)
{
    printf("%s %u", t->virtual ? "thread" : "kernel thread", t->tid);
    if (*t->name)
        printf(" \"%s\"", t->name);
}

static void print_thread(const struct thread *t)
{
    char wait[2048];
    wait_text(t, false, wait, sizeof wait);
    print_identity(t);
    if (t->virtual)
        printf(" %s", state_name(t));
    if (t->virtual && t->lwp) {
        if (*t->call)
            printf(" in %s", t->call);
        printf(" on carrier %d (LWP %d)", t->carrier, t->lwp);
    } else if (!t->virtual && t->carrier >= 0) {
        printf(" carrier %d", t->carrier);
    }
    if (age(t) >= 0)
        printf(" for %.3f s", age(t));
    if (t->wait == WAIT_SLEEP)
        printf(", sleeps");
    else if (*wait)
        printf(", waits for %s", wait);
    if (left(t) >= 0)
        printf(t->wait == WAIT_SLEEP ? ", %.3f s more" : ", %.3f s more at most", left(t));
    putchar('\n');
}

static void print_circle(struct thread *const *threads, size_t n)
{
    char wait[2048];
    printf("DEADLOCK of %zu thread%s:\n", n, n == 1 ? "" : "s");
    for (size_t i = 0; i < n; i++) {
        wait_text(threads[i], false, wait, sizeof wait);
        printf("    ");
        print_identity(threads[i]);
        printf(" waits for %s\n", wait);
    }
    putchar('\n');
}

static void count(size_t counts[4], size_t *blocked, size_t *incomplete)
{
    for (size_t i = 0; i < engine.nthreads; i++) {
        const struct thread *t = &engine.threads[i];
        counts[t->state]++;
        *blocked += t->virtual && *t->call != '\0';
        *incomplete += t->stack->trouble != NULL;
    }
}

static void print_head(void)
{
    size_t counts[4] = {0}, blocked = 0, incomplete = 0;
    count(counts, &blocked, &incomplete);
    if (target.live)
        printf("process %d (%s), stopped for %.1f ms\n", target.pid, target.exe, target.stopped_ms);
    else
        printf("core file %s of process %d (%s)\n", target.core, target.pid, target.exe);
    if (!engine.found)
        printf("libvthread is not in it: kernel threads only\n");
    else
        printf("%zu virtual threads: %zu parked, %zu runnable, %zu running (%zu of them blocked in calls); "
               "%zu carriers (%zu "
               "spare) for %zu places\n",
               engine.nvirtual, counts[STATE_PARKED], counts[STATE_RUNNABLE], counts[STATE_RUNNING], blocked, engine.ncarriers,
               engine.nspares, engine.nplaces);
    if (incomplete)
        printf("%zu stacks are incomplete\n", incomplete);
    putchar('\n');
}

/* --- groups --------------------------------------------------------------------------------------------- */

static const struct stack **seen; /* by the stack's number: what is visible of it */

/* Of the same state, waiting in the same way, with the same stack. */
static int by_group(const void *a, const void *b)
{
    const struct thread *x = *(struct thread *const *)a, *y = *(struct thread *const *)b;
    if (x->virtual != y->virtual)
        return x->virtual ? -1 : 1;
    if (x->state != y->state)
        return (int)x->state - (int)y->state;
    if (x->wait != y->wait)
        return (int)x->wait - (int)y->wait;
    bool descriptor = x->wait == WAIT_RING || x->wait == WAIT_READY;
    if (descriptor && x->detail != y->detail)
        return x->detail < y->detail ? -1 : 1;
    int calls = strcmp(x->call, y->call);
    if (calls)
        return calls;
    const struct stack *p = seen[x->stack->id], *q = seen[y->stack->id];
    return p->id < q->id ? -1 : p->id > q->id;
}

/* Stacks that differ only in frames that are not shown are one to the reader. */
static void see_stacks(void)
{
    size_t n = unwind_stacks();
    seen = xalloc((n + 1) * sizeof *seen);
    for (size_t i = 0; i < engine.nthreads; i++) {
        const struct stack *s = engine.threads[i].stack;
        uint32_t from, to;
        if (seen[s->id])
            continue;
        visible(s, &from, &to);
        seen[s->id] = unwind_intern(s->ip + from, to - from, s->trouble);
    }
}

struct group {
    struct thread **first;
    size_t n;
};

static int by_size(const void *a, const void *b)
{
    const struct group *x = a, *y = b;
    if (x->n != y->n)
        return x->n > y->n ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

static struct group *make_groups(size_t *ngroups)
{
    struct thread **order = xalloc((engine.nthreads + 1) * sizeof *order);
    struct group *groups = NULL;
    size_t capacity = 0, n = 0;
    see_stacks();
    for (size_t i = 0; i < engine.nthreads; i++)
        order[i] = &engine.threads[i];
    qsort(order, engine.nthreads, sizeof *order, by_group);
    for (size_t i = 0; i < engine.nthreads; i++) {
        if (i && by_group(&order[i - 1], &order[i]) == 0) {
            groups[n - 1].n++;
            continue;
        }
        groups = xgrow(groups, &capacity, n + 1, sizeof *groups);
        groups[n++] = (struct group){&order[i], 1};
    }
    qsort(groups, n, sizeof *groups, by_size);
    *ngroups = n;
    return groups;
}

#define EXAMPLES 5

/* What some of them wait for, each thing once. */
static void print_examples(const struct group *g)
{
    char seen[EXAMPLES][2048];
    unsigned n = 0;
    size_t i = 0;
    for (; i < g->n && n < EXAMPLES; i++) {
        bool again = false;
        wait_text(g->first[i], false, seen[n], sizeof seen[n]);
        for (unsigned k = 0; k < n && !again; k++)
            again = strcmp(seen[k], seen[n]) == 0;
        if (!again)
            n++;
    }
    for (unsigned k = 0; k < n; k++)
        printf("    on %s\n", seen[k]);
    if (i < g->n)
        printf("    on others\n");
}

static void print_group(const struct group *g)
{
    char wait[256];
    const struct thread *t = g->first[0];
    double least = age(t), most = least;
    wait_text(t, true, wait, sizeof wait);
    for (size_t i = 1; i < g->n; i++) {
        double a = age(g->first[i]);
        if (a >= 0 && (least < 0 || a < least))
            least = a;
        if (a > most)
            most = a;
    }
    printf("%zu %sthread%s", g->n, t->virtual ? "" : "kernel ", g->n == 1 ? "" : "s");
    if (t->virtual)
        printf(" %s", state_name(t));
    if (*t->call)
        printf(" in %s", t->call);
    if (t->wait == WAIT_SLEEP)
        printf(", sleep%s", g->n == 1 ? "s" : "");
    else if (*wait)
        printf(", wait%s for %s", g->n == 1 ? "s" : "", wait);
    if (most >= 0)
        printf(", for %.3f to %.3f s", least, most);
    printf("\n    ");
    for (size_t i = 0; i < g->n && i < EXAMPLES; i++) {
        printf("%s%u", i ? ", " : "", g->first[i]->tid);
        if (*g->first[i]->name)
            printf(" \"%s\"", g->first[i]->name);
    }
    printf(g->n > EXAMPLES ? ", ...\n" : "\n");
    if (*wait && t->wait != WAIT_SLEEP && t->wait != WAIT_OTHER)
        print_examples(g);
    print_stack(t);
    putchar('\n');
}

static void print_one(uint32_t id)
{
    struct thread *t = engine_by_tid(id);
    if (!t) {
        printf("thread %u has ended\n", id);
        return;
    }
    print_thread(t);
    print_stack(t);
}

static void print_text(void)
{
    if (options->only) {
        print_one(options->only);
        return;
    }
    print_head();
    wait_circles(print_circle);
    if (options->group) {
        size_t n;
        struct group *groups = make_groups(&n);
        for (size_t i = 0; i < n; i++)
            print_group(&groups[i]);
        return;
    }
    for (size_t i = 0; i < engine.nthreads; i++) {
        print_thread(&engine.threads[i]);
        print_stack(&engine.threads[i]);
        putchar('\n');
    }
}

/* --- JSON ----------------------------------------------------------------------------------------------- */

static void json_string(const char *text)
{
    putchar('"');
    for (const unsigned char *s = (const unsigned char *)text; *s; s++) {
        if (*s == '"' || *s == '\\')
            printf("\\%c", *s);
        else if (*s < 0x20 || *s >= 0x7f)
            printf("\\u%04x", *s); /* bytes of unknown meaning, as if Latin-1 */
        else
            putchar(*s);
    }
    putchar('"');
}

static void json_text(const char *name, const char *text)
{
    printf(",\"%s\":", name);
    json_string(text);
}

static void json_wait(const struct thread *t)
{
    char text[2048];
    wait_text(t, false, text, sizeof text);
    printf(",\"wait\":{\"kind\":\"%s\"", wait_names[t->wait]);
    json_text("text", text);
    if (left(t) >= 0)
        printf(",\"seconds_left\":%.6f", left(t));
    const struct thread *whom = wait_whom(t);
    if (whom)
        printf(",\"for_thread\":%u", whom->tid);
    if (t->wait == WAIT_RING || t->wait == WAIT_READY) {
        const char *what = descriptor_text((int)t->on);
        printf(",\"descriptor\":%d", (int)t->on);
        json_text("operation", wait_operation(t));
        if (what)
            json_text("descriptor_text", what);
    } else if (t->wait != WAIT_JOIN && t->wait != WAIT_SLEEP && t->wait != WAIT_OTHER) {
        struct symbol s = symbol_of_data(t->on);
        printf(",\"address\":\"%#lx\"", t->on);
        if (s.function) {
            json_text("symbol", s.function);
            free((void *)s.function);
        }
        if (t->owner)
            printf(",\"owner\":%u", t->owner);
    }
    putchar('}');
}

static void json_thread(const struct thread *t)
{
    printf("{\"id\":%u,\"virtual\":%s", t->tid, t->virtual ? "true" : "false");
    json_text("name", t->name);
    json_text("state", t->state == STATE_KERNEL ? "kernel" : state_name(t));
    if (t->lwp)
        printf(",\"lwp\":%d", t->lwp);
    if (t->carrier >= 0)
        printf(",\"carrier\":%d", t->carrier);
    if (*t->call)
        json_text("call", t->call);
    if (age(t) >= 0)
        printf(",\"seconds\":%.6f", age(t));
    if (t->wait != WAIT_NOTHING)
        json_wait(t);
    if (t->start) {
        const char *start = symbol_of(t->start | IP_EXACT)->function;
        printf(",\"start\":{\"address\":\"%#lx\"", t->start);
        if (start)
            json_text("function", start);
        putchar('}');
    }
    printf(",\"complete\":%s", t->stack->trouble ? "false" : "true");
    if (t->stack->trouble)
        json_text("incomplete_because", t->stack->trouble);
    printf(",\"stack\":%u}", t->stack->id);
}

static void json_stack(const struct stack *s)
{
    printf("{\"id\":%u,\"frames\":[", s->id);
    for (uint32_t i = 0; i < s->n; i++) {
        const struct symbol *f = symbol_of(s->ip[i]);
        printf("%s{\"address\":\"%#lx\"", i ? "," : "", s->ip[i] & ~IP_EXACT);
        if (f->function) {
            json_text("function", f->function);
            printf(",\"offset\":%lu", f->offset);
        }
        if (f->path) {
            json_text("file", f->path);
            printf(",\"line\":%d", f->line);
        }
        if (f->module)
            json_text("module", f->module);
        if (f->module && !f->function)
            printf(",\"module_offset\":%lu", f->offset);
        printf(",\"library\":%s}", f->ours ? "true" : "false");
    }
    printf("]}");
}

static bool first_circle = true;

static void json_circle(struct thread *const *threads, size_t n)
{
    printf(first_circle ? "[" : ",[");
    first_circle = false;
    for (size_t i = 0; i < n; i++)
        printf("%s%u", i ? "," : "", threads[i]->tid);
    putchar(']');
}

static void print_json(void)
{
    size_t counts[4] = {0}, blocked = 0, incomplete = 0;
    count(counts, &blocked, &incomplete);
    printf("{\"process\":%d", target.pid);
    json_text("executable", target.exe);
    if (target.live)
        printf(",\"stopped_ms\":%.3f", target.stopped_ms);
    else
        json_text("core", target.core);
    printf(",\"library\":%s,\"virtual_threads\":%zu,\"parked\":%zu,\"runnable\":%zu,\"running\":%zu,"
           "\"blocked\":%zu",
           engine.found ? "true" : "false", engine.nvirtual, counts[STATE_PARKED], counts[STATE_RUNNABLE],
           counts[STATE_RUNNING], blocked);
    printf(",\"carriers\":%zu,\"spare_carriers\":%zu,\"places\":%zu,\"incomplete\":%zu,\n\"deadlocks\":[", engine.ncarriers,
           engine.nspares, engine.nplaces, incomplete);
    wait_circles(json_circle);
    printf("],\n\"threads\":[");
    const struct stack **stacks = xalloc((unwind_stacks() + 1) * sizeof *stacks);
    for (size_t i = 0; i < engine.nthreads; i++) {
        stacks[engine.threads[i].stack->id] = engine.threads[i].stack;
        printf(i ? ",\n" : "\n");
        json_thread(&engine.threads[i]);
    }
    printf("],\n\"stacks\":[");
    for (size_t i = 0, n = 0; i < unwind_stacks(); i++) {
        if (!stacks[i])
            continue;
        printf(n++ ? ",\n" : "\n");
        json_stack(stacks[i]);
    }
    printf("]}\n");
}

void report(const struct options *o)
{
    options = o;
    if (o->json)
        print_json();
    else
        print_text();
}
