/*
 * Rarely used functions that may block, and other names of common ones, called once each: they do what they should, in
 * virtual threads too.
 */
#include "check.h"
#include <aio.h>
#include <aliases.h>
#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <rpc/netdb.h>
#include <shadow.h>
#include <signal.h>
#include <stdlib.h>
#if __has_include(<sys/pidfd.h>)
#include <sys/pidfd.h> /* glibc 2.36 */
#endif
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <syslog.h>
#include <termios.h>
#include <threads.h>
#include <wchar.h>

/* What no header declares, or declares under another name. */
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int dir, const char *path, int flags);
int __openat64_2(int dir, const char *path, int flags);
ssize_t __pread64_chk(int fd, void *buf, size_t n, off_t offset, size_t size);
pid_t __wait(int *status);
int __sigsuspend(const sigset_t *set);
int __sigpause(int sig_or_mask, int is_sig);
int bsd_sigpause(int mask) __asm__("sigpause");
int xpg_sigpause(int sig) __asm__("__xpg_sigpause");
int _IO_puts(const char *text);
int _IO_printf(const char *format, ...);

static char directory[] = "/tmp/other_names-XXXXXX", path[64];
static _Atomic int came, waiting;
static int *here;

static void *descriptors(void *arg)
{
    char text[16] = "", name[80];
    int fd, out[2];
    off64_t at = 1;

    fd = SYS(__open_2(path, O_RDWR));
    EXPECT(__pread64_chk(fd, text, 4, 0, sizeof text), 4);
    EXPECT_STR(text, "text");
    SYS(close(fd));
    SYS(close(SYS(__open64_2(path, O_RDONLY))));
    SYS(close(SYS(__openat_2(AT_FDCWD, path, O_RDONLY))));
    fd = SYS(__openat64_2(AT_FDCWD, path, O_RDWR));
    SYS(pipe(out));
    EXPECT(sendfile64(out[1], fd, &at, 3), 3);
    EXPECT(read(out[0], text, sizeof text), 3);
    CHECK(memcmp(text, "ext", 3) == 0);
    if (fallocate(fd, 0, 0, 5000) == 0)
        EXPECT(lseek(fd, 0, SEEK_END), 5000);
    if (fallocate64(fd, 0, 0, 6000) == 0)
        EXPECT(lseek(fd, 0, SEEK_END), 6000);
    SYS(close(out[0])), SYS(close(out[1])), SYS(close(fd));
#define MADE(call, pattern)                                                                                                    \
    (snprintf(name, sizeof name, "%s/" pattern, directory), fd = SYS(call), SYS(close(fd)), SYS(unlink(name)))
    MADE(mkstemp64(name), "aXXXXXX");
    MADE(mkostemp64(name, O_CLOEXEC), "bXXXXXX");
    MADE(mkstemps(name, 2), "cXXXXXX.c");
    MADE(mkstemps64(name, 2), "dXXXXXX.c");
    MADE(mkostemps(name, 2, O_CLOEXEC), "eXXXXXX.c");
    MADE(mkostemps64(name, 2, O_CLOEXEC), "fXXXXXX.c");
#if __GLIBC_PREREQ(2, 36)
    fd = pidfd_open(getpid(), 0);
    if (fd >= 0) {
        int copy = pidfd_getfd(fd, STDOUT_FILENO, 0); /* which a sandbox may forbid */
        if (copy >= 0)
            SYS(close(copy));
        SYS(close(fd));
    }
#endif
    ZERO(getentropy(text, sizeof text));
    static char many[257];
    EXPECT_ERRNO(getentropy(many, sizeof many), EIO);
#if __GLIBC_PREREQ(2, 34)
    closefrom(60000);
#endif
    return arg;
}

static void *terminal(void *arg)
{
    struct termios settings;
    char text[8];
    int fd = posix_openpt(O_RDWR | O_NOCTTY);

    if (fd == -1) /* no such file system */
        return arg;
    SYS(grantpt(fd)), SYS(unlockpt(fd));
    int to = SYS(open(ptsname(fd), O_RDWR | O_NOCTTY));
    SYS(tcgetattr(to, &settings));
    cfmakeraw(&settings);
    SYS(tcsetattr(to, TCSADRAIN, &settings));
    SYS(tcsetattr(to, TCSANOW, &settings));
    EXPECT(write(to, "a", 1), 1);
    EXPECT(read(fd, text, sizeof text), 1);
    SYS(tcdrain(to));
    SYS(tcsendbreak(to, 0));
    EXPECT_ERRNO(tcsetattr(to, 77, &settings), EINVAL);
    SYS(close(to)), SYS(close(fd));
    return arg;
}

static void on_signal(int signal)
{
    (void)signal;
    ++*here;
}

/* Each wait ends by a signal that is let in, which others send until then. */
static void *signals(void *arg)
{
    sigset_t all, old, usr1;
    int handled = 0;

    here = &handled;
    CHECK(signal(SIGUSR1, on_signal) == SIG_DFL);
    sigfillset(&all);
    ZERO(sigprocmask(SIG_BLOCK, &all, &old));
    ZERO(sigprocmask(SIG_SETMASK, NULL, &usr1));
    CHECK(sigismember(&usr1, SIGUSR1) == 1);
    for (int i = 1; i <= 5; i++) {
        waiting = i;
        sigfillset(&all);
        sigdelset(&all, SIGUSR1);
        uint32_t mask;
        memcpy(&mask, &all, sizeof mask);
        switch (i) {
        case 1:
            EXPECT_ERRNO(__sigsuspend(&all), EINTR);
            break;
        case 2:
            EXPECT_ERRNO(__sigpause((int)mask, 0), EINTR);
            break;
        case 3:
            EXPECT_ERRNO(__sigpause(SIGUSR1, 1), EINTR);
            break;
        case 4:
            EXPECT_ERRNO(bsd_sigpause((int)mask), EINTR);
            break;
        default:
            EXPECT_ERRNO(xpg_sigpause(SIGUSR1), EINTR);
        }
        CHECK(handled > 0);
        came = i;
    }
    EXPECT_ERRNO(xpg_sigpause(77), EINVAL);
    ZERO(sigprocmask(SIG_SETMASK, &old, NULL));
    signal(SIGUSR1, SIG_IGN);
    return arg;
}

static void *send_signals(void *arg)
{
    pthread_t *to = arg;

    while (came < 5) {
        if (waiting > came)
            ZERO(pthread_kill(*to, SIGUSR1));
        sleep_us(1000);
    }
    return NULL;
}

static void *children(void *arg)
{
    int status;
    pid_t pid = SYS(fork());

    if (pid == 0)
        _exit(3);
    EXPECT(__wait(&status), pid);
    EXPECT(WEXITSTATUS(status), 3);
    return arg;
}

static void print(const char *format, ...)
{
    va_list list;

    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    va_start(list, format);
    vdprintf(STDERR_FILENO, format, list);
    va_end(list);
    va_start(list, format);
    vsyslog(LOG_DEBUG, format, list);
    va_end(list);
}

static void print_wide(FILE *f, const wchar_t *format, ...)
{
    va_list list;

    va_start(list, format);
    vfwprintf(f, format, list);
    va_end(list);
}

static void scan_wide(FILE *f, const wchar_t *format, ...)
{
    va_list list;

    va_start(list, format);
    EXPECT(vfwscanf(f, format, list), 1);
    va_end(list);
}

static void *streams(void *arg)
{
    char text[16];
    wchar_t wide[16];
    int n;
    FILE *f;

    CHECK(freopen(path, "r", stdin) == stdin);
    EXPECT(getchar(), 't');
    EXPECT(getchar_unlocked(), 'e');
    EXPECT(scanf("xt %d", &n), 1);
    EXPECT(n, 12);
    CHECK(fgets(text, sizeof text, stdin) != NULL);
    EXPECT(putchar('o'), 'o');
    EXPECT(putchar_unlocked('n'), 'n');
    CHECK(_IO_puts("e") >= 0);
    EXPECT(_IO_printf("%s\n", "two"), 4);
    print("%s\n", "three");
    ZERO(ftrylockfile(stdout));
    funlockfile(stdout);
    snprintf(text, sizeof text, "%s", "");
    f = fopen(path, "w+");
    CHECK(f != NULL);
    EXPECT(fputwc_unlocked(L'a', f), L'a');
    EXPECT(putwc_unlocked(L'b', f), L'b');
    CHECK(fputws_unlocked(L"cd\n", f) >= 0);
    print_wide(f, L"%d\n", 99);
    rewind(f);
    EXPECT(fgetwc_unlocked(f), L'a');
    EXPECT(getwc_unlocked(f), L'b');
    CHECK(fgetws_unlocked(wide, 16, f) == wide);
    scan_wide(f, L"%d", &n);
    EXPECT(n, 99);
    ZERO(fclose(f));
    return arg;
}

/* What they find depends on the machine; that they come back, and agree with themselves, does not. */
static void *look_ups(void *arg)
{
    static char buf[16384];
    struct servent se, *servent;
    struct protoent pe, *proto;
    struct netent ne, *net;
    struct hostent he, *host;
    struct rpcent re, *rpc;
    struct spwd sp, *shadow;
    struct aliasent ae, *alias;
    char *h, *u, *d;
    int error;

    setservent(0);
    if ((servent = getservent()))
        CHECK(servent->s_name != NULL);
    getservent_r(&se, buf, sizeof buf, &servent);
    endservent();
    setprotoent(0);
    if ((proto = getprotoent()))
        CHECK(proto->p_name != NULL);
    getprotoent_r(&pe, buf, sizeof buf, &proto);
    endprotoent();
    setnetent(0);
    getnetent();
    getnetent_r(&ne, buf, sizeof buf, &net, &error);
    endnetent();
    getnetbyname_r("loopback", &ne, buf, sizeof buf, &net, &error);
    getnetbyaddr_r(127, AF_INET, &ne, buf, sizeof buf, &net, &error);
    sethostent(1);
    gethostent_r(&he, buf, sizeof buf, &host, &error);
    endhostent();
    if ((rpc = getrpcbyname("portmapper")))
        EXPECT(rpc->r_number, 100000);
    getrpcbynumber(100000);
    EXPECT(getrpcbyname_r("no-such-service", &re, buf, sizeof buf, &rpc), 0);
    CHECK(rpc == NULL);
    EXPECT(getrpcbynumber_r(1, &re, buf, sizeof buf, &rpc), 0);
    setspent();
    getspent();
    getspent_r(&sp, buf, sizeof buf, &shadow);
    endspent();
    setnetgrent("no-such-group");
    EXPECT(getnetgrent(&h, &u, &d), 0);
    EXPECT(getnetgrent_r(&h, &u, &d, buf, sizeof buf), 0);
    endnetgrent();
    getaliasbyname("no-such-alias");
    getaliasbyname_r("no-such-alias", &ae, buf, sizeof buf, &alias);
    CHECK(alias == NULL);
    return arg;
}

static void *asynchronous(void *arg)
{
    char text[8] = "";
    int fd = SYS(open(path, O_RDWR | O_CREAT | O_TRUNC, 0600));
    struct aiocb64 put = {.aio_fildes = fd, .aio_buf = "async", .aio_nbytes = 5, .aio_lio_opcode = LIO_WRITE},
                   get = {.aio_fildes = fd, .aio_buf = text, .aio_nbytes = 5};
    struct aiocb64 *list[1] = {&put};
    const struct aiocb64 *one[1] = {&get};

    SYS(lio_listio64(LIO_WAIT, list, 1, NULL));
    SYS(aio_read64(&get));
    while (aio_error64(&get) == EINPROGRESS)
        SYS(aio_suspend64(one, 1, NULL));
    EXPECT(aio_return64(&get), 5);
    EXPECT_STR(text, "async");
    SYS(close(fd));
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST};
    struct gaicb request = {.ar_name = "127.0.0.1", .ar_request = &hints}, *requests[] = {&request};
    const struct gaicb *waited[] = {&request};
    ZERO(getaddrinfo_a(GAI_NOWAIT, requests, 1, NULL));
    while (gai_error(&request) == EAI_INPROGRESS)
        gai_suspend(waited, 1, NULL);
    ZERO(gai_error(&request));
    freeaddrinfo(request.ar_result);
    return arg;
}

static mtx_t lock;
static cnd_t changed;
static int state;

static int detached(void *arg)
{
    (void)arg;
    CHECK(gettid() > 0 && gettid() != getpid());
    mtx_lock(&lock);
    state = 1;
    cnd_signal(&changed);
    mtx_unlock(&lock);
    return 0;
}

static void *c_threads(void *arg)
{
    thrd_t t;

    EXPECT(mtx_init(&lock, mtx_plain), thrd_success);
    EXPECT(cnd_init(&changed), thrd_success);
    EXPECT(thrd_create(&t, detached, NULL), thrd_success);
    EXPECT(thrd_detach(t), thrd_success);
    mtx_lock(&lock);
    while (!state)
        cnd_wait(&changed, &lock);
    mtx_unlock(&lock);
    ZERO(tgkill(getpid(), gettid(), 0));
    return arg;
}

int main(void)
{
    static const struct {
        const char *name;
        void *(*run)(void *);
    } parts[] = {{"descriptors", descriptors}, {"terminal", terminal},         {"children", children},  {"streams", streams},
                 {"look-ups", look_ups},       {"asynchronous", asynchronous}, {"C threads", c_threads}};

    begin(40);
    CHECK(mkdtemp(directory) != NULL);
    snprintf(path, sizeof path, "%s/file", directory);
    int fd = SYS(open(path, O_RDWR | O_CREAT, 0600));
    write_all(fd, "text 12\n", 8);
    SYS(close(fd));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        join(start(parts[i].run, NULL));
        puts(parts[i].name);
    }
    pthread_t t = start(signals, NULL);
    join(start(send_signals, &t));
    join(t);
    puts("signals");
    SYS(unlink(path));
    SYS(rmdir(directory));
    return finish();
}
