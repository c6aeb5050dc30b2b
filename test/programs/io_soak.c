/*
 * An echo server with a thread for each connection under a client that checks every byte, while both are
 * tormented.
 *
 * usage: io_soak [connections [seconds [steady|torn|handed [tolerant: 0 or 1]]]]
 *
 * The client is a process of its own, single-threaded on epoll. Byte o of stream s is a function of s and o,
 * so a byte that is lost, comes twice or belongs to another stream is seen by whoever gets it next: the
 * server checks what it reads, the client what comes back. A stream begins with its own number.
 *
 * steady: the connections stay for the whole time, and all that was sent must come back.
 * torn: the client ends connections at random: by a reset, by closing one half, or in the middle; the
 * server's threads get signals (handlers with and without SA_RESTART), and those of odd streams are cancelled
 * too, or find their socket shut down by another thread. What comes back must be a beginning of what was
 * sent, and all of it where nothing but signals came in between. In the end no thread and no descriptor may
 * be left. handed: as torn, and another thread goes on with the connection of a cancelled one, where that has
 * stopped. A read that was cancelled must have taken nothing. (POSIX says so; glibc before 2.41 does not
 * quite do it.) tolerant: both take what a system under pressure may answer, EINTR, EAGAIN, ENOMEM and
 * ECONNRESET, at any call; so a stream may end early, but none may be wrong.
 */
#include "check.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define CHUNK  4096
#define WINDOW 16384 /* the most that a stream has under way */

enum mode { STEADY, TORN, HANDED };
static enum mode mode;
static long connections, seconds;
static bool tolerant;
static struct sockaddr_in address = {.sin_family = AF_INET};

/* --- the bytes -------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static uint64_t word(uint64_t stream, uint64_t index)
{
    return index == 0 ? stream : mix(stream * UINT64_C(0x9e3779b97f4a7c15) + index);
}

static void fill(unsigned char *to, uint64_t stream, uint64_t offset, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint64_t w = word(stream, (offset + i) / 8);
        size_t from = (offset + i) % 8, part = 8 - from < n - i ? 8 - from : n - i;
        memcpy(to + i, (unsigned char *)&w + from, part);
        i += part;
    }
}

static void compare(const char *who, const unsigned char *got, uint64_t stream, uint64_t offset, size_t n)
{
    unsigned char want[WINDOW];
    CHECK(n <= sizeof want);
    fill(want, stream, offset, n);
    if (memcmp(got, want, n) == 0)
        return;
    size_t i = 0;
    while (got[i] == want[i])
        i++;
    FAIL("%s: stream %llu: byte %llu is %d, expected %d", who, (unsigned long long)stream, (unsigned long long)(offset + i),
         got[i], want[i]);
}

/* What a system under pressure may answer, so that the call is to be made again. */
static bool transient(int error)
{
    return tolerant && (error == EINTR || error == EAGAIN || error == ENOMEM);
}

static uint64_t chance_state;

static uint64_t chance(uint64_t below)
{
    chance_state += UINT64_C(0x9e3779b97f4a7c15);
    return mix(chance_state) % below;
}

/* --- the client ------------------------------------------------------------------------------------- */

enum ending { HALF_CLOSE, RESET, CLOSE };

struct stream {
    uint64_t id, sent, got, length; /* length: where it ends */
    enum ending ending;
    int fd;
    bool half; /* the last byte is out and the end has been said */
    bool full; /* there was no room */
};

static int set;
static uint64_t streams, whole, total;

static void watch(struct stream *s, int op)
{
    struct epoll_event ev = {.events = EPOLLIN | (s->full ? EPOLLOUT : 0u), .data.ptr = s};
    SYS(epoll_ctl(set, op, s->fd, &ev));
}

static void stream_open(struct stream *s)
{
    int one = 1;
    *s = (struct stream){.id = streams++, .length = UINT64_MAX, .full = true};
    if (mode != STEADY) {
        s->length = 8 + chance(1 << chance(18));
        s->ending = chance(2) ? HALF_CLOSE : chance(2) ? RESET : CLOSE;
    }
    s->fd = SYS(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    SYS(setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one));
    if (connect(s->fd, (struct sockaddr *)&address, sizeof address) == -1 && errno != EINPROGRESS)
        FAIL("connect: %s", error_name(errno));
    watch(s, EPOLL_CTL_ADD);
}

static void stream_close(struct stream *s)
{
    /* Always by a reset, unless it is the end that is tested: what is in TIME_WAIT would use up the ports. */
    struct linger reset = {.l_onoff = 1};
    if (s->ending != CLOSE || s->half || s->got == 0)
        SYS(setsockopt(s->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset));
    SYS(close(s->fd));
    s->fd = -1;
}

/* Sends what the window has room for, in pieces of any size. False when the stream is over. */
static bool stream_send(struct stream *s)
{
    unsigned char data[WINDOW];
    bool was_full = s->full;
    s->full = false;
    while (!s->half && s->sent < s->length) {
        uint64_t room = WINDOW - (s->sent - s->got), left = s->length - s->sent;
        if (room < WINDOW / 2 && s->sent > s->got)
            break;
        size_t n = 1 + chance(1 << chance(14));
        n = n < room ? n : room;
        n = n < left ? n : left;
        fill(data, s->id, s->sent, n);
        ssize_t ret = send(s->fd, data, n, MSG_NOSIGNAL);
        if (ret == -1 && (errno == EAGAIN || transient(errno))) {
            s->full = true;
            break;
        }
        if (ret == -1)
            return false;
        s->sent += (uint64_t)ret;
        if (chance(4) == 0)
            break;
    }
    if (!s->half && s->sent == s->length) {
        if (s->ending != HALF_CLOSE)
            return false;
        s->half = true;
        if (shutdown(s->fd, SHUT_WR) == -1)
            return false;
    }
    if (was_full != s->full)
        watch(s, EPOLL_CTL_MOD);
    return true;
}

/* False when the stream is over. */
static bool stream_receive(struct stream *s)
{
    unsigned char data[WINDOW];
    ssize_t n = recv(s->fd, data, 1 + chance(sizeof data), 0);
    if (n == -1 && (errno == EAGAIN || transient(errno)))
        return true;
    if (n <= 0) {
        if (!tolerant && (mode == STEADY || s->id % 2 == 0) && (n == -1 || !s->half || s->got != s->length))
            FAIL("client: stream %llu ended at %llu of %llu sent, %s", (unsigned long long)s->id, (unsigned long long)s->got,
                 (unsigned long long)s->sent, n == 0 ? "end of file" : error_name(errno));
        whole += s->half && s->got == s->length;
        return false;
    }
    if (s->got + (uint64_t)n > s->sent)
        FAIL("client: stream %llu: more came back than was sent", (unsigned long long)s->id);
    compare("client", data, s->id, s->got, (size_t)n);
    s->got += (uint64_t)n;
    total += (uint64_t)n;
    return true;
}

static int client(void)
{
    struct stream *all = calloc((size_t)connections, sizeof *all);
    struct epoll_event ready[256];
    long open = 0, living = 0;
    int64_t end = now_us() + seconds * 1000000;
    bool ending = false;
    CHECK(all != NULL);
    chance_state = 12345;
    set = SYS(epoll_create1(EPOLL_CLOEXEC));
    for (;;) {
        for (int i = 0; i < 64 && open < connections && !ending; i++, living++)
            stream_open(&all[open++]);
        int n = epoll_wait(set, ready, 256, open < connections ? 0 : 100);
        CHECK(n >= 0 || transient(errno));
        for (int i = 0; i < n; i++) {
            struct stream *s = ready[i].data.ptr;
            bool on = true;
            if (ready[i].events & ~(uint32_t)EPOLLOUT)
                on = stream_receive(s);
            if (on && stream_send(s))
                continue;
            stream_close(s);
            living--;
            if (!ending) {
                stream_open(s);
                living++;
            }
        }
        if (!ending && now_us() >= end && (open == connections || mode != STEADY)) {
            ending = true;
            for (long i = 0; i < open; i++) { /* the rest of each comes back, and its end */
                struct stream *s = &all[i];
                if (s->fd < 0 || s->half)
                    continue;
                s->length = s->sent >= 8 ? s->sent : 8;
                s->ending = HALF_CLOSE;
                if (!stream_send(s)) {
                    stream_close(s);
                    living--;
                }
            }
        }
        if (ending && living == 0)
            break;
    }
    fprintf(stderr, "io_soak: %llu streams, %llu whole, %llu bytes\n", (unsigned long long)streams, (unsigned long long)whole,
            (unsigned long long)total);
    return 0;
}

/* --- the server ------------------------------------------------------------------------------------- */

/* A connection that a thread has. */
struct peer {
    pthread_t thread;
    long index; /* in the table, or -1 */
    int fd;
    bool named, broken;
    uint64_t id, offset; /* read so far */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* what is in the table has its thread and its descriptor */
static struct peer **table;
static long in_table, room;
static struct gate ended = GATE;
static long begun;
static atomic_bool over;
static _Thread_local unsigned handled;

static void handler(int signo)
{
    (void)signo;
    handled++;
}

static void locked_add(struct peer *p)
{
    if (in_table == room) {
        room = room ? room * 2 : 1024;
        struct peer **more;
        while (!(more = realloc(table, (size_t)room * sizeof *table)))
            CHECK(tolerant);
        table = more;
    }
    p->index = in_table;
    table[in_table++] = p;
}

static void locked_remove(struct peer *p)
{
    table[p->index] = table[--in_table];
    table[p->index]->index = p->index;
}

static void start_peer(struct peer *p);

static void peer_over(void *arg)
{
    struct peer *p = arg;
    ZERO(pthread_mutex_lock(&lock));
    locked_remove(p);
    ZERO(pthread_mutex_unlock(&lock));
    SYS(close(p->fd));
    free(p);
    gate_add(&ended, 1);
}

/* Cancelled: somebody else goes on with it. */
static void peer_handed(void *arg)
{
    struct peer *p = arg;
    ZERO(pthread_mutex_lock(&lock));
    locked_remove(p);
    ZERO(pthread_mutex_unlock(&lock));
    start_peer(p);
    gate_add(&ended, 1);
}

static ssize_t peer_read(struct peer *p, unsigned char *buf, size_t n)
{
    struct iovec iov[2] = {{buf, n / 2}, {buf + n / 2, n - n / 2}};
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
    struct pollfd ready = {.fd = p->fd, .events = POLLIN};
    struct sockaddr_in from;
    socklen_t length = sizeof from;
    switch (p->id / 2 % 6) {
    case 0:
        return read(p->fd, buf, n);
    case 1:
        return recv(p->fd, buf, n, 0);
    case 2:
        return readv(p->fd, iov, 2);
    case 3:
        return recvmsg(p->fd, &msg, 0);
    case 4:
        if (poll(&ready, 1, -1) == -1)
            return -1;
        return read(p->fd, buf, n);
    default:
        return recvfrom(p->fd, buf, n, 0, (struct sockaddr *)&from, &length);
    }
}

static ssize_t peer_write(struct peer *p, const unsigned char *buf, size_t n)
{
    struct iovec iov[2] = {{(void *)buf, n / 2}, {(void *)(buf + n / 2), n - n / 2}};
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
    switch (p->id / 2 % 4) {
    case 0:
        return write(p->fd, buf, n);
    case 1:
        return send(p->fd, buf, n, 0);
    case 2:
        return writev(p->fd, iov, 2);
    default:
        return sendmsg(p->fd, &msg, 0);
    }
}

/* Whether the call is to be made again. */
static bool again(int error, unsigned handled_before)
{
    if (error == EINTR && !tolerant && handled == handled_before)
        FAIL("EINTR, but no handler has run");
    return error == EINTR || transient(error);
}

static void *peer_serve(void *arg)
{
    struct peer *p = arg;
    unsigned char buf[CHUNK];
    int state;
    pthread_cleanup_push(mode == HANDED ? peer_handed : peer_over, p);
    ZERO(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state));
    while (!p->broken) {
        size_t want = p->offset < 8 ? 8 - p->offset : sizeof buf;
        unsigned before = handled;
        ssize_t n = peer_read(p, buf, want);
        if (n == -1 && again(errno, before))
            continue;
        if (n <= 0) {
            bool torn = mode != STEADY && (errno == ECONNRESET || errno == EPIPE || errno == ETIMEDOUT);
            CHECK(n == 0 || torn || (tolerant && errno == ECONNRESET));
            break;
        }
        ZERO(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state));
        if (p->offset < 8)
            memcpy((unsigned char *)&p->id + p->offset, buf, (size_t)n);
        else
            compare("server", buf, p->id, p->offset, (size_t)n);
        p->offset += (uint64_t)n;
        if (p->offset == 8) {
            ZERO(pthread_mutex_lock(&lock));
            p->named = true;
            ZERO(pthread_mutex_unlock(&lock));
        }
        if (mode == TORN)
            ZERO(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state));
        for (size_t done = 0; done < (size_t)n;) {
            before = handled;
            ssize_t m = peer_write(p, buf + done, (size_t)n - done);
            if (m == -1 && again(errno, before))
                continue;
            if (m == -1) {
                CHECK((mode != STEADY || tolerant) && (errno == ECONNRESET || errno == EPIPE));
                p->broken = true;
                break;
            }
            done += (size_t)m;
        }
        ZERO(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state));
    }
    ZERO(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state));
    pthread_cleanup_pop(0);
    peer_over(p);
    return NULL;
}

static void start_peer(struct peer *p)
{
    pthread_attr_t attr;
    int err;
    ZERO(pthread_attr_init(&attr));
    ZERO(pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED));
    ZERO(pthread_attr_setstacksize(&attr, 64 << 10));
    /* With the lock, so that whoever finds it in the table finds its thread too. */
    ZERO(pthread_mutex_lock(&lock));
    begun++;
    locked_add(p);
    while ((err = pthread_create(&p->thread, &attr, peer_serve, p)) != 0) {
        CHECK(transient(err));
        sched_yield();
    }
    ZERO(pthread_mutex_unlock(&lock));
    ZERO(pthread_attr_destroy(&attr));
}

static void *acceptor(void *arg)
{
    int listener = *(int *)arg, one = 1;
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd == -1 && (errno == EINTR || transient(errno) || (tolerant && errno == ECONNRESET)))
            continue;
        if (fd == -1) {
            CHECK(over && errno == EINVAL);
            return NULL;
        }
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct peer *p;
        while (!(p = calloc(1, sizeof *p)))
            CHECK(tolerant);
        p->fd = fd;
        start_peer(p);
    }
}

static void *tormentor(void *arg)
{
    uint64_t step = 0;
    (void)arg;
    chance_state = 54321;
    while (!over) {
        ZERO(pthread_mutex_lock(&lock));
        struct peer *p = in_table ? table[chance((uint64_t)in_table)] : NULL;
        uint64_t what = chance(8);
        if (p && what < 2)
            ZERO(pthread_kill(p->thread, SIGUSR1));
        else if (p && what < 4)
            ZERO(pthread_kill(p->thread, SIGUSR2));
        else if (p && p->named && p->id % 2 && what < 6)
            ZERO(pthread_cancel(p->thread));
        else if (p && p->named && p->id % 2)
            (void)shutdown(p->fd, (int[]){SHUT_RD, SHUT_WR, SHUT_RDWR}[chance(3)]);
        ZERO(pthread_mutex_unlock(&lock));
        if (++step % 16 == 0)
            sleep_us(1000);
    }
    return NULL;
}

/* How many descriptors the process has, as others see it; said in a file, since a pipe would be two of them
 * for a while. */
static long descriptors(int file)
{
    char command[160], said[20] = "";
    int pid = (int)getpid();
    snprintf(command, sizeof command, "unset LD_PRELOAD; ls /proc/%d/fd | wc -l >/proc/%d/fd/%d", pid, pid, file);
    ZERO(system(command));
    CHECK(pread(file, said, sizeof said - 1, 0) > 0);
    return strtol(said, NULL, 10);
}

static void *nothing(void *arg)
{
    return arg;
}

int main(int argc, char **argv)
{
    connections = argument(argc, argv, 1, 100);
    seconds = argument(argc, argv, 2, 1);
    const char *text = argc > 3 ? argv[3] : "torn";
    mode = strcmp(text, "steady") == 0 ? STEADY : strcmp(text, "handed") == 0 ? HANDED : TORN;
    tolerant = argument(argc, argv, 4, 0) != 0;
    begin((unsigned)seconds * 3 + 120);

    struct rlimit files;
    SYS(getrlimit(RLIMIT_NOFILE, &files));
    files.rlim_cur = files.rlim_max;
    SYS(setrlimit(RLIMIT_NOFILE, &files));

    int listener = SYS(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    socklen_t length = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    SYS(bind(listener, (struct sockaddr *)&address, sizeof address));
    SYS(listen(listener, 4096));
    SYS(getsockname(listener, (struct sockaddr *)&address, &length));

    pid_t child = SYS(fork());
    if (child == 0) {
        SYS(close(listener));
        exit(client());
    }

    struct sigaction act = {.sa_handler = handler};
    SYS(sigaction(SIGUSR1, &act, NULL));
    act.sa_flags = SA_RESTART;
    SYS(sigaction(SIGUSR2, &act, NULL));
    signal(SIGPIPE, SIG_IGN);

    join(start(nothing, NULL));
    int file = SYS(memfd_create("descriptors", MFD_CLOEXEC));
    long before = descriptors(file);
    pthread_t accepts = start(acceptor, &listener), torments = accepts;
    if (mode != STEADY)
        torments = start(tormentor, NULL);
    int status;
    while (waitpid(child, &status, 0) == -1)
        CHECK(errno == EINTR);
    EXPECT(status, 0);
    /* With the client everything of its is gone: the threads notice. */
    ZERO(pthread_mutex_lock(&lock));
    over = true;
    ZERO(pthread_mutex_unlock(&lock));
    SYS(shutdown(listener, SHUT_RDWR));
    join(accepts);
    if (mode != STEADY)
        join(torments);
    gate_wait(&ended, begun);
    printf("threads left: %ld\n", begun - ended.count);
    long left = descriptors(file) - before;
    printf("descriptors left: %ld\n", left);
    if (left) {
        char command[100];
        snprintf(command, sizeof command, "unset LD_PRELOAD; ls -l /proc/%d/fd >&2", (int)getpid());
        CHECK(system(command) != -1);
    }
    return left ? 1 : finish();
}
