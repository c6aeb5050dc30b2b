#include "waits.h"

#include "sockets.h"
#include "symbols.h"

#include <linux/io_uring.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *ring_operation(uint32_t opcode)
{
    switch (opcode) {
    case IORING_OP_READ:
        return "read";
    case IORING_OP_READV:
        return "readv";
    case IORING_OP_WRITE:
        return "write";
    case IORING_OP_WRITEV:
        return "writev";
    case IORING_OP_FSYNC:
        return "fsync";
    case IORING_OP_SYNC_FILE_RANGE:
        return "sync_file_range";
    case IORING_OP_POLL_ADD:
        return "poll";
    case IORING_OP_SENDMSG:
        return "sendmsg";
    case IORING_OP_RECVMSG:
        return "recvmsg";
    case IORING_OP_ACCEPT:
        return "accept";
    case IORING_OP_CONNECT:
        return "connect";
    case IORING_OP_SEND:
        return "send";
    case IORING_OP_RECV:
        return "recv";
    case IORING_OP_OPENAT:
        return "openat";
    case IORING_OP_CLOSE:
        return "close";
    case IORING_OP_STATX:
        return "statx";
    case IORING_OP_FALLOCATE:
        return "fallocate";
    case IORING_OP_SPLICE:
        return "splice";
    case IORING_OP_TEE:
        return "tee";
    default:
        return "an operation";
    }
}

const char *wait_operation(const struct thread *t)
{
    if (t->wait == WAIT_RING)
        return ring_operation(t->detail);
    if (t->wait == WAIT_POLL)
        return "poll";
    if (t->wait != WAIT_READY)
        return NULL;
    bool in = t->detail & (POLLIN | POLLRDNORM), out = t->detail & (POLLOUT | POLLWRNORM);
    return in && out ? "input or output" : in ? "input" : out ? "output" : "an event";
}

struct text {
    char *at;
    size_t left;
};

static void __attribute__((format(printf, 2, 3))) put(struct text *t, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(t->at, t->left, format, ap);
    va_end(ap);
    size_t used = n < 0 ? 0 : (size_t)n < t->left ? (size_t)n : t->left - 1;
    t->at += used;
    t->left -= used;
}

static void put_thread(struct text *to, const struct thread *t)
{
    put(to, "%u", t->tid);
    if (*t->name)
        put(to, " \"%s\"", t->name);
}

static void put_object(struct text *to, uint64_t addr)
{
    struct symbol s = symbol_of_data(addr);
    put(to, " %#lx", addr);
    if (s.function && s.offset)
        put(to, " (%s+%lu)", s.function, s.offset);
    else if (s.function)
        put(to, " (%s)", s.function);
    free((void *)s.function);
}

static void put_descriptor(struct text *to, int fd)
{
    const char *text = descriptor_text(fd);
    put(to, " descriptor %d", fd);
    if (text)
        put(to, " (%s)", text);
}

/* The array is on the stack of the thread, or in memory that may have changed since. */
static void put_polled(struct text *to, const struct thread *t)
{
    for (uint32_t i = 0; i < t->detail && i < 8; i++) {
        struct pollfd p;
        uint64_t addr = t->on + i * sizeof p;
        const struct piece *piece = &t->pieces[0];
        if (t->npieces && addr >= piece->lo && addr + sizeof p <= piece->hi)
            memcpy(&p, piece->data + (addr - piece->lo), sizeof p);
        else if (!target_read(addr, &p, sizeof p))
            return;
        put(to, i ? "," : ":");
        put_descriptor(to, p.fd);
    }
    if (t->detail > 8)
        put(to, ", ...");
}

struct thread *wait_whom(const struct thread *t)
{
    switch (t->wait) {
    case WAIT_MUTEX:
    case WAIT_RDLOCK:
    case WAIT_WRLOCK:
        return t->owner ? engine_by_tid(t->owner) : NULL;
    case WAIT_JOIN:
        return engine_by_descriptor(t->on);
    default:
        return NULL;
    }
}

static void put_lock(struct text *to, const struct thread *t, const char *what, bool general)
{
    const struct thread *holder = wait_whom(t);
    put(to, "%s", what);
    if (general)
        return;
    put_object(to, t->on);
    if (holder) {
        put(to, ", held by ");
        put_thread(to, holder);
    } else if (t->owner) {
        put(to, ", held by %u, which has ended", t->owner);
    }
}

void wait_text(const struct thread *t, bool general, char *buf, size_t size)
{
    static const char *const objects[WAITS] = {
        [WAIT_FUTEX] = "futex word", [WAIT_COND] = "condition",    [WAIT_SEM] = "semaphore",
        [WAIT_BARRIER] = "barrier",  [WAIT_ONCE] = "pthread_once", [WAIT_PROXY] = "robust or priority mutex",
    };
    struct text to = {buf, size};
    const struct thread *other;
    *buf = '\0';
    switch (t->wait) {
    case WAIT_NOTHING:
        return;
    case WAIT_SLEEP:
        put(&to, "sleep");
        return;
    case WAIT_MUTEX:
        put_lock(&to, t, "mutex", general);
        return;
    case WAIT_RDLOCK:
        put_lock(&to, t, "rwlock, to read,", general);
        return;
    case WAIT_WRLOCK:
        put_lock(&to, t, "rwlock, to write,", general);
        return;
    case WAIT_JOIN:
        put(&to, "the end of ");
        other = general ? NULL : wait_whom(t);
        if (other)
            put_thread(&to, other);
        else
            put(&to, general ? "a thread" : "a thread that has ended");
        return;
    case WAIT_RING:
    case WAIT_READY:
        put(&to, t->wait == WAIT_RING ? "%s on" : "%s of", wait_operation(t));
        if (general)
            put(&to, " a descriptor");
        else
            put_descriptor(&to, (int)t->on);
        return;
    case WAIT_POLL:
        put(&to, "poll of %u", t->detail);
        if (!general)
            put_polled(&to, t);
        return;
    default:
        put(&to, "%s", objects[t->wait] ? objects[t->wait] : "something");
        if (objects[t->wait] && !general)
            put_object(&to, t->on);
    }
}

/* --- circles -------------------------------------------------------------------------------------------- */

size_t wait_circles(void (*f)(struct thread *const *, size_t))
{
    uint32_t *seen = xalloc(engine.nthreads * sizeof *seen); /* in which walk */
    struct thread **path = xalloc((engine.nthreads + 1) * sizeof *path);
    size_t found = 0;
    for (size_t i = 0; i < engine.nthreads; i++) {
        struct thread *t = &engine.threads[i];
        size_t n = 0;
        while (t && !seen[t - engine.threads]) {
            seen[t - engine.threads] = (uint32_t)i + 1;
            path[n++] = t;
            t = wait_whom(t);
        }
        if (!t || seen[t - engine.threads] != i + 1)
            continue;
        /* It has come back to one of its own. */
        size_t from = 0;
        while (path[from] != t)
            from++;
        found++;
        if (f)
            f(path + from, n - from);
    }
    free(seen);
    free(path);
    return found;
}
