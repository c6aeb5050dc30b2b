/* The other names of functions that may block, and those that are called seldom: each once in a thread, with
 * its arguments and its result right. */
#include "check.h"
#include <aio.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <grp.h>
#include <mqueue.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pwd.h>
#include <resolv.h>
#include <shadow.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <syslog.h>
#include <termios.h>
#include <wchar.h>
#include <wordexp.h>

/* Names that no header declares. */
ssize_t __read(int fd, void *buf, size_t n);
ssize_t __write(int fd, const void *buf, size_t n);
ssize_t __pread64(int fd, void *buf, size_t n, off_t offset);
ssize_t __pwrite64(int fd, const void *buf, size_t n, off_t offset);
ssize_t __send(int fd, const void *buf, size_t n, int flags);
int __connect(int fd, const struct sockaddr *addr, socklen_t size);
int __open(const char *path, int flags, ...);
int __open64(const char *path, int flags, ...);
int __close(int fd);
int __dup2(int fd, int to);
int __fcntl(int fd, int cmd, ...);
int __pipe(int fds[2]);
int __poll(struct pollfd *fds, nfds_t n, int timeout);
int __select(int n, fd_set *in, fd_set *out, fd_set *except, struct timeval *timeout);
int __nanosleep(const struct timespec *request, struct timespec *remaining);
int __sched_yield(void);
pid_t __waitpid(pid_t pid, int *status, int options);
ssize_t __getdelim(char **line, size_t *n, int delimiter, FILE *f);
int _IO_getc(FILE *f);
int _IO_putc(int c, FILE *f);
int _IO_puts(const char *text);

static char directory[] = "/tmp/io_names-XXXXXX", path[64];

static void *descriptors(void *arg)
{
    char text[16] = "";
    int fd = SYS(open64(path, O_RDWR | O_CREAT, 0640)), copy, p[2];
    struct stat st;

    SYS(fstat(fd, &st));
    EXPECT(st.st_mode & 0777, 0640);
    EXPECT(__write(fd, "0123456789", 10), 10);
    EXPECT(__pwrite64(fd, "ab", 2, 2), 2);
    EXPECT(pwrite64(fd, "cd", 2, 4), 2);
    EXPECT(__pread64(fd, text, 10, 0), 10);
    EXPECT_STR(text, "01abcd6789");
    EXPECT(pread64(fd, text, 2, 8), 2);
    EXPECT(memcmp(text, "89", 2), 0);
    struct iovec v = {text, 4};
    EXPECT(preadv64(fd, &v, 1, 2), 4);
    EXPECT(memcmp(text, "abcd", 4), 0);
    EXPECT(preadv64v2(fd, &v, 1, 6, 0), 4);
    EXPECT(memcmp(text, "6789", 4), 0);
    EXPECT(pwritev64(fd, &v, 1, 0), 4);
    EXPECT(pwritev64v2(fd, &v, 1, 6, 0), 4);
    EXPECT(lseek(fd, 0, SEEK_SET), 0);
    EXPECT(__read(fd, text, 10), 10);
    EXPECT_STR(text, "6789cd6789");
    ZERO(posix_fallocate(fd, 0, 100));
    ZERO(posix_fallocate64(fd, 0, 100));
    SYS(sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE));
    SYS(lockf(fd, F_LOCK, 0));
    SYS(lockf64(fd, F_ULOCK, 0));
    SYS(__fcntl(fd, F_SETFD, FD_CLOEXEC));
    EXPECT(fcntl64(fd, F_GETFD), FD_CLOEXEC);
    copy = SYS(fcntl64(fd, F_DUPFD_CLOEXEC, 100));
    CHECK(copy >= 100);
    EXPECT(__dup2(fd, copy), copy);
    EXPECT(dup3(fd, copy, 0), copy);
    SYS(__close(copy));
    SYS(close(fd));
    EXPECT_ERRNO(close(fd), EBADF);
    fd = SYS(__open(path, O_RDONLY));
    SYS(close(fd));
    fd = SYS(__open64(path, O_WRONLY | O_APPEND));
    SYS(close(fd));
    fd = SYS(creat(path, 0600));
    SYS(close(fd));
    fd = SYS(creat64(path, 0600));
    SYS(close(fd));
    int dir = SYS(open(directory, O_RDONLY | O_DIRECTORY));
    fd = SYS(openat(dir, "other", O_CREAT | O_EXCL | O_RDWR, 0600));
    SYS(fstat(fd, &st));
    EXPECT(st.st_mode & 0777, 0600);
    SYS(close(fd));
    fd = SYS(openat64(dir, "other", O_RDONLY));
    SYS(close(fd));
    SYS(unlinkat(dir, "other", 0));
    SYS(close(dir));
    fd = SYS(open("/tmp", O_TMPFILE | O_RDWR, 0600));
    SYS(close(fd));
    SYS(__pipe(p));
    struct pollfd one = {p[0], POLLIN, 0};
    EXPECT(__poll(&one, 1, 2), 0);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(p[1], &set);
    EXPECT(__select(p[1] + 1, NULL, &set, NULL, &(struct timeval){1, 0}), 1);
    EXPECT(getrandom(text, 10, 0), 10);
    SYS(close_range((unsigned)p[0], (unsigned)p[0], 0));
    SYS(close(p[1]));
    sync();
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    SYS(msync(page, 4096, MS_SYNC));
    SYS(munmap(page, 4096));
    EXPECT_ERRNO(tcdrain(-1), EBADF);
    return arg;
}

static void *events(void *arg)
{
    uint64_t n;
    struct signalfd_siginfo info;
    sigset_t set;
    struct epoll_event e = {.events = EPOLLIN};
    struct timespec t = {0, 1000000};
    int fd = SYS(eventfd(3, EFD_CLOEXEC)), poller;

    SYS(eventfd_read(fd, &n));
    EXPECT(n, 3);
    SYS(eventfd_write(fd, 5));
    poller = SYS(epoll_create(1));
    SYS(epoll_ctl(poller, EPOLL_CTL_ADD, fd, &e));
    sigemptyset(&set);
    EXPECT(epoll_pwait(poller, &e, 1, -1, &set), 1);
    EXPECT(epoll_pwait2(poller, &e, 1, &t, NULL), 1);
    SYS(eventfd_read(fd, &n));
    EXPECT(epoll_pwait2(poller, &e, 1, &t, &set), 0);
    EXPECT(epoll_pwait(poller, &e, 1, 1, NULL), 0);
    SYS(close(poller)), SYS(close(fd));
    sigaddset(&set, SIGRTMIN + 5);
    ZERO(pthread_sigmask(SIG_BLOCK, &set, NULL));
    fd = SYS(signalfd(-1, &set, SFD_NONBLOCK));
    EXPECT_ERRNO(read(fd, &info, sizeof info), EAGAIN);
    SYS(close(fd));
    fd = SYS(inotify_init());
    SYS(close(fd));
    fd = SYS(inotify_init1(IN_NONBLOCK));
    EXPECT_ERRNO(read(fd, &n, sizeof n), EAGAIN);
    SYS(close(fd));
    fd = SYS(memfd_create("io_names", 0));
    EXPECT(write(fd, "x", 1), 1);
    SYS(close(fd));
    char name[64];
    snprintf(name, sizeof name, "/io_names-%d-%p", (int)getpid(), (void *)&name);
    fd = SYS(shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600));
    SYS(shm_unlink(name));
    SYS(close(fd));
    ZERO(__nanosleep(&t, NULL));
    ZERO(__sched_yield());
    return arg;
}

static void *sockets(void *arg)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, from;
    socklen_t size = sizeof at;
    int l = SYS(socket(AF_INET, SOCK_STREAM, 0)), c = SYS(socket(AF_INET, SOCK_STREAM, 0));
    char text[8];

    SYS(bind(l, (struct sockaddr *)&at, size));
    SYS(listen(l, 1));
    SYS(getsockname(l, (struct sockaddr *)&at, &size));
    SYS(__connect(c, (struct sockaddr *)&at, size));
    int a = SYS(accept4(l, (struct sockaddr *)&from, &size, SOCK_CLOEXEC));
    EXPECT(size, sizeof from);
    EXPECT(__send(c, "abc", 3, 0), 3);
    EXPECT(recv(a, text, 8, 0), 3);
    /* Names that only other parts of libc may be linked to. */
    ssize_t (*recv_)(int, void *, size_t, int) = (__typeof__(recv_))dlsym(RTLD_DEFAULT, "__recv");
    int (*sendmmsg_)(int, struct mmsghdr *, unsigned, int) = (__typeof__(sendmmsg_))dlsym(RTLD_DEFAULT, "__sendmmsg");
    struct iovec part = {"abc", 3};
    struct mmsghdr message = {.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}};
    if (sendmmsg_)
        EXPECT(sendmmsg_(c, &message, 1, 0), 1);
    else
        EXPECT(send(c, "abc", 3, 0), 3);
    if (recv_)
        EXPECT(recv_(a, text, 8, 0), 3);
    else
        EXPECT(recv(a, text, 8, 0), 3);
    SYS(close(a)), SYS(close(c)), SYS(close(l));
    return arg;
}

static void *queues(void *arg)
{
    struct {
        long type;
        char text[4];
    } m = {1, "abc"};
    struct timespec in_a_while = in_ms(CLOCK_REALTIME, 5), t = {0, 2000000};
    struct mq_attr small = {.mq_maxmsg = 1, .mq_msgsize = 8};
    char name[64], text[8];
    unsigned priority;
    int q = SYS(msgget(IPC_PRIVATE, 0600)), s = SYS(semget(IPC_PRIVATE, 1, 0600));

    SYS(msgsnd(q, &m, 4, 0));
    EXPECT(msgrcv(q, &m, 4, 0, 0), 4);
    EXPECT_ERRNO(msgrcv(q, &m, 4, 0, IPC_NOWAIT), ENOMSG);
    SYS(msgctl(q, IPC_RMID, NULL));
    EXPECT_ERRNO(semtimedop(s, &(struct sembuf){0, -1, 0}, 1, &t), EAGAIN);
    SYS(semop(s, &(struct sembuf){0, 2, 0}, 1));
    SYS(semtimedop(s, (struct sembuf[]){{0, -1, 0}, {0, -1, 0}}, 2, &t));
    EXPECT_ERRNO(semop(s, &(struct sembuf){0, -1, IPC_NOWAIT}, 1), EAGAIN);
    SYS(semctl(s, 0, IPC_RMID));
    EXPECT_ERRNO(semop(s, &(struct sembuf){0, -1, 0}, 1), EINVAL);
    snprintf(name, sizeof name, "/io_names-%d-%p", (int)getpid(), (void *)&name);
    mqd_t p = SYS(mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &small));
    SYS(mq_unlink(name));
    SYS(mq_send(p, "one", 3, 7));
    EXPECT_ERRNO(mq_timedsend(p, "two", 3, 0, &in_a_while), ETIMEDOUT);
    EXPECT(mq_receive(p, text, sizeof text, &priority), 3);
    EXPECT(priority, 7);
    EXPECT_ERRNO(mq_timedreceive(p, text, sizeof text, NULL, &in_a_while), ETIMEDOUT);
    EXPECT_ERRNO(mq_receive(p, text, 1, NULL), EMSGSIZE);
    SYS(mq_close(p));
    return arg;
}

static pid_t child_that_exits(int status)
{
    pid_t pid = SYS(fork());

    if (pid == 0)
        _exit(status);
    return pid;
}

static void *children(void *arg)
{
    int status;
    struct rusage usage;
    siginfo_t info;
    char text[32];

    pid_t pid = child_that_exits(3);
    ZERO(waitid(P_PID, (id_t)pid, &info, WEXITED));
    EXPECT(info.si_pid, pid);
    EXPECT(info.si_status, 3);
    pid = child_that_exits(4);
    EXPECT(wait4(pid, &status, 0, &usage), pid);
    EXPECT(WEXITSTATUS(status), 4);
    pid = child_that_exits(5);
    EXPECT(__waitpid(pid, &status, 0), pid);
    EXPECT(WEXITSTATUS(status), 5);
    pid = child_that_exits(6);
    EXPECT(wait3(&status, 0, &usage), pid);
    EXPECT(WEXITSTATUS(status), 6);
    pid = child_that_exits(7);
    EXPECT(wait(&status), pid);
    EXPECT(WEXITSTATUS(status), 7);
    EXPECT_ERRNO(wait(NULL), ECHILD);
    EXPECT_ERRNO(waitpid(-1, NULL, WNOHANG), ECHILD);
    EXPECT(system("exit 9"), 9 << 8);
    FILE *f = popen("echo from a shell", "r");
    CHECK(f && fgets(text, sizeof text, f));
    EXPECT_STR(text, "from a shell\n");
    ZERO(pclose(f));
    return arg;
}

static int vprint(FILE *f, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    int n = vfprintf(f, format, list);
    va_end(list);
    return n;
}

static int vscan(FILE *f, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    int n = vfscanf(f, format, list);
    va_end(list);
    return n;
}

static FILE *in, *out;

static void *write_text(void *arg)
{
    sleep_us(1000);
    EXPECT(fputc('a', out), 'a');
    EXPECT(putc('b', out), 'b');
    EXPECT(_IO_putc('c', out), 'c');
    EXPECT(fputc_unlocked('d', out), 'd');
    EXPECT(putc_unlocked('\n', out), '\n');
    CHECK(fputs("line two\n", out) >= 0);
    CHECK(fputs_unlocked("line three\n", out) >= 0);
    EXPECT(fwrite("1234", 2, 2, out), 2);
    EXPECT(fwrite_unlocked("5678\n", 1, 5, out), 5);
    EXPECT(vprint(out, "%d:%s ", 42, "text"), 8);
    EXPECT(fprintf(out, "%d;", 7), 2);
    EXPECT(putw(0x01020304, out), 0);
    ZERO(fflush_unlocked(out));
    sleep_us(1000);
    CHECK(fprintf(out, "last one\n") == 9);
    ZERO(fclose(out));
    return arg;
}

static void *streams(void *arg)
{
    char text[32], *line = NULL;
    size_t size = 0;
    int p[2], n, m;

    SYS(pipe(p));
    in = fdopen(p[0], "r");
    out = fdopen(p[1], "w");
    CHECK(in && out);
    pthread_t t = start(write_text, NULL);
    EXPECT(fgetc(in), 'a');
    EXPECT(getc(in), 'b');
    EXPECT(_IO_getc(in), 'c');
    EXPECT(fgetc_unlocked(in), 'd');
    EXPECT(getc_unlocked(in), '\n');
    EXPECT(__getdelim(&line, &size, ' ', in), 5);
    EXPECT_STR(line, "line ");
    CHECK(fgets_unlocked(text, sizeof text, in) != NULL);
    EXPECT_STR(text, "two\n");
    EXPECT(getline(&line, &size, in), 11);
    EXPECT(fread_unlocked(text, 1, 4, in), 4);
    EXPECT(getdelim(&line, &size, '\n', in), 5);
    EXPECT(vscan(in, "%d:%31s", &n, text), 2);
    EXPECT(n, 42);
    EXPECT_STR(text, "text");
    EXPECT(fscanf(in, "%d;", &m), 1);
    EXPECT(m, 7);
    EXPECT(getw(in), 0x01020304);
    CHECK(fgets(text, sizeof text, in) != NULL);
    EXPECT_STR(text, "last one\n");
    EXPECT(fgetc(in), EOF);
    CHECK(feof(in));
    join(t);
    ZERO(fclose(in));
    free(line);
    in = fopen64(path, "w+");
    CHECK(in != NULL);
    EXPECT(dprintf(fileno(in), "%s %d\n", "file", 5), 7);
    in = freopen64(path, "r", in);
    CHECK(in != NULL);
    EXPECT(fscanf(in, "%31s %d", text, &n), 2);
    EXPECT_STR(text, "file");
    in = freopen(path, "r", in);
    CHECK(in != NULL);
    ZERO(fclose(in));
    ZERO(fflush(NULL));
    return arg;
}

static void *write_wide(void *arg)
{
    sleep_us(1000);
    EXPECT(fputwc(L'a', out), L'a');
    EXPECT(putwc(L'b', out), L'b');
    CHECK(fputws(L"cd\n", out) >= 0);
    EXPECT(fwprintf(out, L"%d %ls\n", 12, L"wide"), 8);
    ZERO(fclose(out));
    return arg;
}

static void *wide_streams(void *arg)
{
    wchar_t text[32];
    int p[2], n;

    SYS(pipe(p));
    in = fdopen(p[0], "r");
    out = fdopen(p[1], "w");
    CHECK(in && out);
    pthread_t t = start(write_wide, NULL);
    EXPECT(fgetwc(in), L'a');
    EXPECT(getwc(in), L'b');
    CHECK(fgetws(text, 32, in) != NULL);
    EXPECT(wcscmp(text, L"cd\n"), 0);
    EXPECT(fwscanf(in, L"%d %ls", &n, text), 2);
    EXPECT(n, 12);
    EXPECT(wcscmp(text, L"wide"), 0);
    join(t);
    ZERO(fclose(in));
    return arg;
}

static void *look_ups(void *arg)
{
    char buf[4096], host[64], service[32];
    struct passwd pw, *user = getpwuid(0);
    struct group gr, *group;
    struct servent se, *servent;
    struct protoent pe, *proto;
    struct hostent he, *h;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(80)};
    int error, n = 16;
    gid_t groups[16];

    CHECK(user && user->pw_uid == 0);
    EXPECT_STR(user->pw_name, "root");
    CHECK((user = getpwnam("root")) && user->pw_uid == 0);
    CHECK(getpwnam_r("root", &pw, buf, sizeof buf, &user) == 0 && user == &pw && pw.pw_uid == 0);
    CHECK(getpwuid_r(0, &pw, buf, sizeof buf, &user) == 0 && user == &pw);
    CHECK(getpwnam_r("nobody-of-this-name", &pw, buf, sizeof buf, &user) == 0 && user == NULL);
    EXPECT(getpwnam_r("root", &pw, buf, 1, &user), ERANGE);
    CHECK((group = getgrgid(0)) != NULL);
    CHECK(getgrnam(group->gr_name) != NULL);
    CHECK(getgrgid_r(0, &gr, buf, sizeof buf, &group) == 0 && group == &gr);
    CHECK(getgrnam_r(gr.gr_name, &gr, buf, sizeof buf, &group) == 0);
    CHECK(getgrouplist("root", 0, groups, &n) >= 1);
    setpwent();
    CHECK(getpwent() != NULL);
    EXPECT(getpwent_r(&pw, buf, sizeof buf, &user), 0);
    endpwent();
    setgrent();
    CHECK(getgrent() != NULL);
    EXPECT(getgrent_r(&gr, buf, sizeof buf, &group), 0);
    endgrent();
    getspnam("root");
    struct spwd sp, *shadow;
    getspnam_r("root", &sp, buf, sizeof buf, &shadow);
    /* These depend on the files of the machine; what is asked is that they come back. */
    if ((servent = getservbyname("http", "tcp")))
        EXPECT(ntohs((uint16_t)servent->s_port), 80);
    getservbyport(htons(80), "tcp");
    EXPECT(getservbyname_r("http", "tcp", &se, buf, sizeof buf, &servent), 0);
    EXPECT(getservbyport_r(htons(80), "tcp", &se, buf, sizeof buf, &servent), 0);
    if ((proto = getprotobyname("tcp")))
        EXPECT(proto->p_proto, 6);
    getprotobynumber(6);
    EXPECT(getprotobyname_r("tcp", &pe, buf, sizeof buf, &proto), 0);
    EXPECT(getprotobynumber_r(6, &pe, buf, sizeof buf, &proto), 0);
    CHECK((h = gethostbyname("127.0.0.1")) && h->h_length == 4);
    CHECK((h = gethostbyname2("127.0.0.1", AF_INET)) != NULL);
    CHECK(gethostbyname_r("127.0.0.1", &he, buf, sizeof buf, &h, &error) == 0 && h == &he);
    CHECK(gethostbyname2_r("127.0.0.1", AF_INET, &he, buf, sizeof buf, &h, &error) == 0 && h == &he);
    gethostbyaddr(&at.sin_addr, 4, AF_INET);
    gethostbyaddr_r(&at.sin_addr, 4, AF_INET, &he, buf, sizeof buf, &h, &error);
    sethostent(1);
    gethostent();
    endhostent();
    getnetbyname("loopback");
    getnetbyaddr(127, AF_INET);
    ZERO(getnameinfo((struct sockaddr *)&at, sizeof at, host, sizeof host, service, sizeof service,
                     NI_NUMERICHOST | NI_NUMERICSERV));
    EXPECT_STR(host, "127.0.0.1");
    EXPECT_STR(service, "80");
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST}, *result;
    ZERO(getaddrinfo("127.0.0.1", "80", &hints, &result));
    freeaddrinfo(result);
    struct gaicb request = {.ar_name = "127.0.0.1", .ar_request = &hints}, *list[] = {&request};
    ZERO(getaddrinfo_a(GAI_WAIT, list, 1, NULL));
    ZERO(gai_error(&request));
    freeaddrinfo(request.ar_result);
    ZERO(innetgr("no-such-group", NULL, NULL, NULL));
    wordexp_t words;
    ZERO(wordexp("one two$((1+2))", &words, 0));
    EXPECT(words.we_wordc, 2);
    EXPECT_STR(words.we_wordv[1], "two3");
    wordfree(&words);
    return arg;
}

static void *asynchronous(void *arg)
{
    char text[8] = "";
    int fd = SYS(open(path, O_RDWR | O_CREAT | O_TRUNC, 0600));
    struct aiocb put = {.aio_fildes = fd, .aio_buf = "async", .aio_nbytes = 5, .aio_lio_opcode = LIO_WRITE},
                 get = {.aio_fildes = fd, .aio_buf = text, .aio_nbytes = 5, .aio_lio_opcode = LIO_READ};
    struct aiocb *list[1] = {&put};
    const struct aiocb *waiting[1] = {&get};

    SYS(lio_listio(LIO_WAIT, list, 1, NULL));
    EXPECT(aio_return(&put), 5);
    SYS(aio_read(&get));
    while (aio_error(&get) == EINPROGRESS)
        SYS(aio_suspend(waiting, 1, NULL));
    EXPECT(aio_return(&get), 5);
    EXPECT_STR(text, "async");
    SYS(close(fd));
    syslog(LOG_DEBUG, "%s", "io_names");
    return arg;
}

int main(void)
{
    static const struct {
        const char *name;
        void *(*run)(void *);
    } parts[] = {
        {"descriptors", descriptors},   {"events", events},   {"sockets", sockets},           {"queues", queues},
        {"children", children},         {"streams", streams}, {"wide streams", wide_streams}, {"look-ups", look_ups},
        {"asynchronous", asynchronous},
    };

    begin(40);
    CHECK(mkdtemp(directory) != NULL);
    snprintf(path, sizeof path, "%s/file", directory);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        join(start(parts[i].run, NULL));
        puts(parts[i].name);
    }
    SYS(unlink(path));
    SYS(rmdir(directory));
    return finish();
}
