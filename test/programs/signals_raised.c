/* SIGPIPE and SIGXFSZ, which calls raise: a thread that blocks them has them pending for itself alone. Others, which would be
 * ended by them, live on, also where they run on the same kernel thread next. */
#include "check.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define LIMIT 1048576

static char bytes[4096];
static atomic_bool over;

static void *live(void *arg)
{
    const struct timespec a_little = {0, 200000};
    while (!over)
        nanosleep(&a_little, NULL);
    return arg;
}

/* The last call has raised sig. */
static void raised(int line, int sig)
{
    const struct timespec none = {0, 0}, a_little = {0, 1000000};
    sigset_t set, pending;

    nanosleep(&a_little, NULL); /* others run here meanwhile */
    sigpending(&pending);
    if (!sigismember(&pending, sig))
        FAIL("line %d: signal %d is not pending", line, sig);
    sigemptyset(&set);
    sigaddset(&set, sig);
    if (sigtimedwait(&set, NULL, &none) != sig || sigtimedwait(&set, NULL, &none) != -1)
        FAIL("line %d: signal %d is not pending once", line, sig);
}

#define RAISES(sig, call, error)                                                                                               \
    do {                                                                                                                       \
        EXPECT_ERRNO(call, error);                                                                                             \
        raised(__LINE__, sig);                                                                                                 \
    } while (0)
#define PIPES(call)   RAISES(SIGPIPE, call, EPIPE)
#define EXCEEDS(call) RAISES(SIGXFSZ, call, EFBIG)

static void *exceed(void *arg)
{
    char name[] = "/tmp/signals_raisedXXXXXX";
    struct iovec iov[2] = {{bytes, 100}, {bytes, 100}};
    int fd = SYS(mkstemp(name)), from = SYS(memfd_create("from", 0)), p[2];
    off64_t at = LIMIT, start = 0;
    off_t begin = 0;

    SYS(pipe(p));
    EXPECT(write(p[1], bytes, 100), 100);
    EXPECT(write(from, bytes, sizeof bytes), sizeof bytes);
    SYS(lseek(fd, LIMIT - 10, SEEK_SET));
    EXPECT(write(fd, bytes, 100), 10);
    EXCEEDS(write(fd, bytes, 100));
    EXCEEDS(writev(fd, iov, 2));
    EXCEEDS(pwrite(fd, bytes, 1, LIMIT));
    EXCEEDS(pwritev(fd, iov, 2, LIMIT));
    EXCEEDS(pwritev2(fd, iov, 2, LIMIT, RWF_DSYNC));
    EXCEEDS(ftruncate(fd, LIMIT + 1));
    EXCEEDS(ftruncate64(fd, LIMIT + 1));
    EXCEEDS(truncate(name, LIMIT + 1));
    EXCEEDS(truncate64(name, LIMIT + 1));
    SYS(unlink(name));
    EXCEEDS(fallocate(fd, 0, 0, LIMIT + 1));
    EXPECT_ERROR(posix_fallocate(fd, 0, LIMIT + 1), EFBIG);
    raised(__LINE__, SIGXFSZ);
    EXCEEDS(splice(p[0], NULL, fd, &at, 10, 0));
    EXCEEDS(sendfile(fd, from, &begin, 10));
    EXCEEDS(copy_file_range(fd, &start, fd, &at, 10, 0));
    EXCEEDS(dprintf(fd, "%s", "too much"));
    EXCEEDS(syscall(SYS_write, fd, bytes, 1));
    FILE *fp = fdopen(fd, "w");
    CHECK(fp);
    EXPECT(fputs("too much", fp), 1);
    EXCEEDS(fflush(fp));
    fclose(fp);
    const struct timespec none = {0, 0};
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGXFSZ);
    sigtimedwait(&set, NULL, &none); /* where it has tried once more */
    SYS(close(from));
    SYS(close(p[0]));
    SYS(close(p[1]));
    return arg;
}

static void break_socket(int fd)
{
    struct iovec iov[2] = {{bytes, 100}, {bytes, 100}};
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
    struct mmsghdr msgs[2] = {{.msg_hdr = msg}, {.msg_hdr = msg}};

    PIPES(send(fd, bytes, 1, 0));
    PIPES(sendto(fd, bytes, 1, MSG_DONTWAIT, NULL, 0));
    PIPES(sendmsg(fd, &msg, 0));
    PIPES(sendmmsg(fd, msgs, 2, 0));
    PIPES(sendmmsg(fd, msgs, 2, MSG_DONTWAIT));
    PIPES(syscall(SYS_sendmmsg, fd, msgs, 2, 0));
}

static void break_any(int fd)
{
    struct iovec iov[2] = {{bytes, 100}, {bytes, 100}};
    int from = SYS(memfd_create("from", 0)), p[2];
    off_t begin = 0;

    EXPECT(write(from, bytes, sizeof bytes), sizeof bytes);
    SYS(pipe(p));
    EXPECT(write(p[1], bytes, 100), 100);
    PIPES(write(fd, bytes, 1));
    PIPES(writev(fd, iov, 2));
    PIPES(pwritev2(fd, iov, 2, -1, 0));
    PIPES(pwritev2(fd, iov, 2, -1, RWF_HIPRI));
    PIPES(pwritev2(fd, iov, 2, -1, RWF_NOWAIT));
    PIPES(sendfile(fd, from, &begin, 10));
    PIPES(splice(p[0], NULL, fd, NULL, 10, 0));
    PIPES(splice(p[0], NULL, fd, NULL, 10, SPLICE_F_NONBLOCK));
    PIPES(dprintf(fd, "%s", "nobody"));
    PIPES(syscall(SYS_write, fd, bytes, 1));
    FILE *fp = fdopen(SYS(dup(fd)), "w");
    CHECK(fp);
    EXPECT(fputs("nobody", fp), 1);
    PIPES(fflush(fp));
    EXPECT(fclose(fp), 0);
    SYS(close(from));
    SYS(close(p[0]));
    SYS(close(p[1]));
}

static void *take_some(void *arg)
{
    int fd = *(int *)arg;
    static char some[4096];
    EXPECT(read(fd, some, sizeof some), sizeof some);
    SYS(close(fd));
    return arg;
}

static void *break_pipes(void *arg)
{
    int p[2];
    pthread_t reader;
    static char much[1 << 20];
    struct iovec iov[2] = {{bytes, 100}, {bytes, 100}};

    for (int nonblock = 0; nonblock < 2; nonblock++) {
        SYS(socketpair(AF_UNIX, SOCK_STREAM, 0, p));
        SYS(close(p[0]));
        if (nonblock)
            SYS(fcntl(p[1], F_SETFL, O_NONBLOCK));
        break_any(p[1]);
        break_socket(p[1]);
        SYS(close(p[1]));
        SYS(pipe(p));
        SYS(close(p[0]));
        if (nonblock)
            SYS(fcntl(p[1], F_SETFL, O_NONBLOCK));
        break_any(p[1]);
        PIPES(vmsplice(p[1], iov, 2, 0));
        SYS(close(p[1]));
    }
    /* A writer that waits when the reader leaves is told how much is out, and of the rest by the signal. */
    SYS(pipe(p));
    ZERO(pthread_create(&reader, NULL, take_some, &p[0]));
    CHECK(write(p[1], much, sizeof much) > 0);
    raised(__LINE__, SIGPIPE);
    ZERO(pthread_join(reader, NULL));
    SYS(close(p[1]));
    return arg;
}

static void *blocks(void *arg)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    sigaddset(&set, SIGXFSZ);
    ZERO(pthread_sigmask(SIG_BLOCK, &set, NULL));
    exceed(arg);
    break_pipes(arg);
    return arg;
}

int main(void)
{
    struct rlimit limit = {LIMIT, LIMIT};
    pthread_t others[8], thread;

    begin(20);
    SYS(setrlimit(RLIMIT_FSIZE, &limit));
    for (int i = 0; i < 8; i++)
        ZERO(pthread_create(&others[i], NULL, live, NULL));
    for (int i = 0; i < 3; i++) {
        ZERO(pthread_create(&thread, NULL, blocks, NULL));
        ZERO(pthread_join(thread, NULL));
    }
    over = true;
    for (int i = 0; i < 8; i++)
        ZERO(pthread_join(others[i], NULL));
    return finish();
}
