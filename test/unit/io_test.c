/* Readiness, operations and polls on the engine itself. The loop index: bit 0 asks for epoll, the rest is the number of
 * carriers less one. */
#include "engine.h"

#include <fcntl.h>
#include <linux/io_uring.h>
#include <sys/socket.h>

static void start(int i)
{
    engine_start(1 + (unsigned)i / 2, 64, i % 2 ? VT_IO_EPOLL : VT_IO_AUTO);
}

/* Two pipes or socket pairs: [0] is read from. */
static void make_pair(int fd[2], bool sockets)
{
    if (sockets)
        EQUALS(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
    else
        EQUALS(pipe2(fd, O_NONBLOCK), 0);
}

static void put(int fd, char c)
{
    EQUALS(write(fd, &c, 1), 1);
}

static char get(int fd)
{
    char c = 0;
    EQUALS(read(fd, &c, 1), 1);
    return c;
}

static void *put_later(void *arg)
{
    sleep_for(2 * MS);
    put((int)(intptr_t)arg, 'x');
    return NULL;
}

static void *interrupt_later(void *arg)
{
    struct vt_thread *t = arg;
    sleep_for(2 * MS);
    atomic_fetch_or(&t->interrupt, VT_SIGNALLED | VT_NORESTART);
    vt_unblock(t);
    return NULL;
}

static void *cancel_later(void *arg)
{
    struct vt_thread *t = arg;
    sleep_for(2 * MS);
    atomic_fetch_or(&t->interrupt, VT_CANCELLED);
    vt_unblock(t);
    return NULL;
}

/* --- readiness ----------------------------------------------------------------------------------------------------------- */

static void *ready(void *arg)
{
    struct vt_thread *me = vt_current(), *t;
    for (int sockets = 0; sockets < 2; sockets++) {
        int fd[2];
        uint64_t at;
        make_pair(fd, sockets);
        EQUALS(vt_io_ready(fd[0], POLLIN, 1, 0), -ETIMEDOUT);
        EQUALS(vt_io_ready(fd[0], POLLIN, at = vt_now() + 5 * MS, 0), -ETIMEDOUT);
        HOLDS(vt_now() >= at);
        t = spawn(put_later, (void *)(intptr_t)fd[1]);
        HOLDS(vt_io_ready(fd[0], POLLIN, VT_NEVER, 0) & POLLIN);
        join(t);
        /* Ready already. */
        HOLDS(vt_io_ready(fd[0], POLLIN, VT_NEVER, 0) & POLLIN);
        HOLDS(vt_io_ready(fd[1], POLLOUT, VT_NEVER, 0) & POLLOUT);
        EQUALS(get(fd[0]), 'x');
        /* Interrupted, by what the flags say; a wake-up for no reason does not end it. */
        t = spawn(interrupt_later, me);
        EQUALS(vt_io_ready(fd[0], POLLIN, VT_NEVER, VT_PARK_RESTARTABLE), -EINTR);
        join(t);
        vt_unblock(me);
        t = spawn(interrupt_later, me);
        EQUALS(vt_io_ready(fd[0], POLLIN, vt_now() + 10 * MS, VT_PARK_CANCELLABLE), -ETIMEDOUT);
        join(t);
        t = spawn(cancel_later, me);
        EQUALS(vt_io_ready(fd[0], POLLIN, VT_NEVER, VT_PARK_CANCELLABLE), -EINTR);
        join(t);
        atomic_store(&me->interrupt, 0);
        /* The other end goes. */
        close(fd[1]);
        HOLDS(vt_io_ready(fd[0], POLLIN, VT_NEVER, 0) & POLLHUP);
        close(fd[0]);
        EQUALS(vt_io_ready(fd[0], POLLIN, VT_NEVER, 0), -EBADF);
    }
    int file = open("/proc/self/exe", O_RDONLY);
    int32_t got = vt_io_ready(file, POLLIN, VT_NEVER, 0);
    HOLDS(got == -EPERM || (got & POLLIN));
    close(file);
    return arg;
}

START_TEST(readiness)
{
    start(_i);
    join(spawn(ready, NULL));
}
END_TEST

/* Several threads wait for one descriptor. */
static int shared[2];

static void *wait_shared(void *arg)
{
    HOLDS(vt_io_ready(shared[0], POLLIN, VT_NEVER, 0) & POLLIN);
    return arg;
}

static void *time_out_shared(void *arg)
{
    EQUALS(vt_io_ready(shared[0], POLLIN, vt_now() + 3 * MS, 0), -ETIMEDOUT);
    return arg;
}

START_TEST(one_descriptor)
{
    struct vt_thread *threads[6], *timed[6];
    start(_i);
    make_pair(shared, false);
    for (int i = 0; i < 6; i++) {
        threads[i] = spawn(wait_shared, NULL);
        timed[i] = spawn(time_out_shared, NULL);
    }
    for (int i = 0; i < 6; i++)
        join(timed[i]);
    put(shared[1], 'x');
    for (int i = 0; i < 6; i++)
        join(threads[i]);
}
END_TEST

/* --- poll ------------------------------------------------------------------------------------------- */

static void *polls(void *arg)
{
    struct vt_thread *me = vt_current(), *t;
    int a[2], b[2], many[40][2];
    uint64_t at;
    make_pair(a, false);
    make_pair(b, true);
    struct pollfd p[3] = {{a[0], POLLIN, 0}, {-1, POLLIN, 0}, {b[0], POLLIN, 0}};
    EQUALS(vt_io_poll(p, 3, 1, 0, NULL), 0);
    EQUALS(vt_io_poll(p, 3, at = vt_now() + 5 * MS, 0, NULL), 0);
    HOLDS(vt_now() >= at);
    EQUALS(vt_io_poll(NULL, 0, at = vt_now() + 5 * MS, 0, NULL), 0);
    HOLDS(vt_now() >= at);
    t = spawn(put_later, (void *)(intptr_t)b[1]);
    EQUALS(vt_io_poll(p, 3, VT_NEVER, 0, NULL), 1);
    EQUALS(p[2].revents, POLLIN);
    EQUALS(p[0].revents | p[1].revents, 0);
    join(t);
    put(a[1], 'y');
    EQUALS(vt_io_poll(p, 3, VT_NEVER, 0, NULL), 2);
    EQUALS(get(a[0]), 'y');
    EQUALS(get(b[0]), 'x');
    t = spawn(interrupt_later, me);
    EQUALS(vt_io_poll(p, 3, VT_NEVER, VT_PARK_INTERRUPTIBLE, NULL), -EINTR);
    join(t);
    /* One that is closed is an event. */
    p[1].fd = 1 << 20;
    EQUALS(vt_io_poll(p, 3, VT_NEVER, 0, NULL), 1);
    EQUALS(p[1].revents, POLLNVAL);
    /* The same descriptor twice. */
    p[1].fd = a[0];
    EQUALS(vt_io_poll(p, 3, vt_now() + 3 * MS, 0, NULL), 0);
    t = spawn(put_later, (void *)(intptr_t)a[1]);
    EQUALS(vt_io_poll(p, 3, VT_NEVER, 0, NULL), 2);
    join(t);
    /* So many that it is handed over. */
    struct pollfd q[40];
    for (int i = 0; i < 40; i++) {
        make_pair(many[i], false);
        q[i] = (struct pollfd){many[i][0], POLLIN, 0};
    }
    EQUALS(vt_io_poll(q, 40, at = vt_now() + 5 * MS, 0, NULL), 0);
    HOLDS(vt_now() >= at);
    t = spawn(put_later, (void *)(intptr_t)many[39][1]);
    EQUALS(vt_io_poll(q, 40, VT_NEVER, 0, NULL), 1);
    EQUALS(q[39].revents, POLLIN);
    join(t);
    return arg;
}

START_TEST(polling)
{
    start(_i);
    join(spawn(polls, NULL));
}
END_TEST

/* --- operations ------------------------------------------------------------------------------------- */

static void *operations(void *arg)
{
    struct vt_thread *me = vt_current(), *t;
    for (int sockets = 0; sockets < 2; sockets++) {
        int fd[2];
        char buf[8] = "";
        uint64_t at;
        make_pair(fd, sockets);
        for (int i = 0; i < 2; i++)
            fcntl(fd[i], F_SETFL, 0);
        struct vt_io_req in = {.opcode = IORING_OP_READ, .fd = fd[0], .addr = buf, .len = sizeof buf, .off = UINT64_MAX};
        struct vt_io_req out = {.opcode = IORING_OP_WRITE, .fd = fd[1], .addr = "abc", .len = 3, .off = UINT64_MAX};
        EQUALS(vt_io_do(&in, at = vt_now() + 5 * MS, 0), -ETIMEDOUT);
        HOLDS(vt_now() >= at);
        /* What was cancelled takes nothing. */
        EQUALS(vt_io_do(&out, VT_NEVER, 0), 3);
        EQUALS(vt_io_do(&in, VT_NEVER, 0), 3);
        HOLDS(!memcmp(buf, "abc", 3));
        t = spawn(interrupt_later, me);
        EQUALS(vt_io_do(&in, VT_NEVER, VT_PARK_INTERRUPTIBLE), -EINTR);
        join(t);
        t = spawn(put_later, (void *)(intptr_t)fd[1]);
        EQUALS(vt_io_do(&in, VT_NEVER, 0), 1);
        join(t);
        /* At a deadline that has passed what can be done at once is done. */
        EQUALS(vt_io_do(&out, 1, 0), 3);
        close(fd[1]);
        EQUALS(vt_io_do(&in, VT_NEVER, 0), 3);
        EQUALS(vt_io_do(&in, VT_NEVER, 0), 0);
        close(fd[0]);
        EQUALS(vt_io_do(&in, VT_NEVER, 0), -EBADF);
    }
    return arg;
}

START_TEST(ring_operations)
{
    start(_i * 2);
    if (vt_io_has_ring())
        join(spawn(operations, NULL));
}
END_TEST

/* --- races ------------------------------------------------------------------------------------------ */

/* Readers whose waits end by data, deadlines and interruptions at once, and are moved between carriers: no byte is lost or
 * read twice, and nobody waits for ever. */
enum { PAIRS = 8, BYTES = 1200 };

static struct {
    int fd[2];
    struct vt_thread *_Atomic reader;
    unsigned how;
} pairs[PAIRS];
static _Atomic uint32_t readers;

static void *read_bytes(void *arg)
{
    unsigned n = (unsigned)(uintptr_t)arg;
    uint32_t random = n + 1, got = 0;
    int fd = pairs[n].fd[0];
    atomic_store(&pairs[n].reader, vt_current());
    atomic_fetch_add(&readers, 1);
    while (got < BYTES) {
        unsigned char buf[4];
        uint64_t deadline = any(&random, 8) ? vt_now() + any(&random, 60) * US : VT_NEVER;
        int32_t ret;
        if (pairs[n].how == 0 && vt_io_has_ring()) {
            struct vt_io_req in = {
                .opcode = IORING_OP_READ, .fd = fd, .addr = buf, .len = 1 + any(&random, 4), .off = UINT64_MAX};
            ret = vt_io_do(&in, deadline, VT_PARK_INTERRUPTIBLE);
            HOLDS(ret > 0 || ret == -ETIMEDOUT || ret == -EINTR);
        } else {
            if (pairs[n].how == 1) {
                ret = vt_io_ready(fd, POLLIN, deadline, VT_PARK_INTERRUPTIBLE);
                HOLDS(ret > 0 || ret == -ETIMEDOUT || ret == -EINTR);
            } else {
                struct pollfd p[2] = {{fd, POLLIN, 0}, {pairs[(n + 1) % PAIRS].fd[1], POLLERR, 0}};
                ret = vt_io_poll(p, 2, deadline, VT_PARK_INTERRUPTIBLE, NULL);
                HOLDS(ret >= 0 || ret == -EINTR);
            }
            ret = (int32_t)vt_sys3(SYS_read, fd, (long)buf, sizeof buf);
            HOLDS(ret > 0 || ret == -EAGAIN);
        }
        for (int i = 0; i < ret; i++, got++)
            EQUALS(buf[i], (unsigned char)(got + n));
        if (any(&random, 16) == 0)
            vt_yield();
    }
    atomic_store(&pairs[n].reader, NULL);
    atomic_fetch_sub(&readers, 1);
    return NULL;
}

static void *write_bytes(void *arg)
{
    unsigned n = (unsigned)(uintptr_t)arg;
    uint32_t random = n + 99;
    for (uint32_t i = 0; i < BYTES;) {
        if (any(&random, 4))
            sleep_for(any(&random, 60) * US);
        for (uint32_t k = any(&random, 6); k && i < BYTES; k--) {
            char c = (char)(i + n);
            long ret = vt_sys3(SYS_write, pairs[n].fd[1], (long)&c, 1);
            HOLDS(ret == 1 || ret == -EAGAIN);
            if (ret == 1)
                i++;
            else
                HOLDS(vt_io_ready(pairs[n].fd[1], POLLOUT, VT_NEVER, 0) & POLLOUT);
        }
    }
    return NULL;
}

static void *disturb(void *arg)
{
    uint32_t random = 3;
    await_count(&readers, 1);
    while (atomic_load(&readers)) {
        struct vt_thread *t = atomic_load(&pairs[any(&random, PAIRS)].reader);
        if (t) {
            if (any(&random, 4) == 0)
                atomic_fetch_or(&t->interrupt, VT_SIGNALLED);
            vt_unblock(t);
        }
        sleep_for(any(&random, 30) * US);
    }
    return arg;
}

START_TEST(races)
{
    struct vt_thread *threads[PAIRS * 2];
    start(_i);
    for (int i = 0; i < PAIRS; i++) {
        make_pair(pairs[i].fd, i % 2);
        pairs[i].how = (unsigned)i / 2 % 3;
        if (pairs[i].how == 0 && vt_io_has_ring())
            fcntl(pairs[i].fd[0], F_SETFL, 0);
    }
    for (uintptr_t i = 0; i < PAIRS; i++) {
        threads[i] = spawn(read_bytes, (void *)i);
        threads[PAIRS + i] = spawn(write_bytes, (void *)i);
    }
    struct vt_thread *disturber = spawn(disturb, NULL);
    for (int i = 0; i < PAIRS * 2; i++)
        join(threads[i]);
    vt_unblock(disturber);
    vt_unpark(&readers, 1, VT_BITS_ALL);
    for (unsigned i = 0; i < vt_sched.nplaces; i++)
        ck_assert_uint_eq(vt_ring_inflight(&vt_sched.places[i]), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("io");
    TCase *c = tcase_create("io");
    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, readiness, 0, 4);
    tcase_add_loop_test(c, one_descriptor, 0, 6);
    tcase_add_loop_test(c, polling, 0, 4);
    tcase_add_loop_test(c, ring_operations, 0, 2);
    tcase_add_loop_test(c, races, 0, 8);
    suite_add_tcase(s, c);
    return engine_main(s);
}
