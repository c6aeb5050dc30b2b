/*
 * A file each for many threads, all read at once when none is in memory: first as a whole, then in pieces at positions; and
 * one file by many at its one position, each record by one of them. Arguments: how many threads, how many kernel threads
 * there may be meanwhile (0: any number).
 */
#include "check.h"
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>

enum { SIZE = 20000, RECORD = 12000, RECORDS = 1500, READERS = 8 };

static char directory[] = "/var/tmp/cold_files-XXXXXX";
static struct gate reading = GATE, go = GATE;
static int *files, shared;
static _Atomic long most;
static _Atomic int over;
static unsigned char seen[RECORDS];

static unsigned char byte_of(long file, long i)
{
    return (unsigned char)(file * 7 + i * 13 + i / 4096);
}

static void fill(int fd, long id, long n)
{
    unsigned char *data = malloc((size_t)n);

    CHECK(data != NULL);
    for (long i = 0; i < n; i++)
        data[i] = byte_of(id, i);
    write_all(fd, data, (size_t)n);
    free(data);
}

static void expect_bytes(const unsigned char *data, long id, long at, long n)
{
    for (long i = 0; i < n; i++)
        if (data[i] != byte_of(id, at + i))
            FAIL("file %ld: byte %ld is wrong", id, at + i);
}

static void forget(int fd)
{
    ZERO(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
}

static void *read_one(void *arg)
{
    long id = (intptr_t)arg;
    int fd = files[id];
    unsigned char data[SIZE + 10001];
    struct iovec two[2] = {{data, 5000}, {data + 5000, SIZE - 5000}};

    gate_add(&reading, 1);
    gate_wait(&go, 1);
    switch (id % 3) {
    case 0:
        EXPECT(read(fd, data, SIZE + 1), SIZE);
        break;
    case 1:
        EXPECT(pread(fd, data + 9000, 1000, 9000), 1000);
        EXPECT(pread(fd, data, 9000, 0), 9000);
        EXPECT(pread(fd, data + 10000, SIZE, 10000), SIZE - 10000);
        break;
    default:
        EXPECT(readv(fd, two, 2), SIZE);
    }
    expect_bytes(data, id, 0, SIZE);
    return NULL;
}

static long kernel_threads(void)
{
    static char text[4096];
    int fd = SYS(open("/proc/self/status", O_RDONLY));
    ssize_t n = SYS(read(fd, text, sizeof text - 1));

    text[n] = '\0';
    SYS(close(fd));
    const char *line = strstr(text, "\nThreads:");
    CHECK(line != NULL);
    return strtol(line + 9, NULL, 10);
}

/* Kernel workers that a ring has are threads of the process, too. */
static void *count(void *arg)
{
    while (!over) {
        long n = kernel_threads();
        if (n > most)
            most = n;
        sleep_us(500);
    }
    return arg;
}

static void *read_records(void *arg)
{
    unsigned char *data = malloc(RECORD);
    ssize_t n;

    while ((n = SYS(read(shared, data, RECORD))) > 0) {
        EXPECT(n, RECORD);
        long id = data[0] | data[1] << 8;
        CHECK(id < RECORDS);
        for (long i = 2; i < RECORD; i++)
            if (data[i] != byte_of(id, i))
                FAIL("record %ld is torn at %ld", id, i);
        if (__atomic_exchange_n(&seen[id], 1, __ATOMIC_RELAXED))
            FAIL("record %ld came twice", id);
        if (id % 50 == 0)
            forget(shared);
    }
    free(data);
    return arg;
}

static void records(void)
{
    unsigned char *all = malloc((size_t)RECORDS * RECORD);

    CHECK(all != NULL);
    for (long id = 0; id < RECORDS; id++) {
        unsigned char *record = all + id * RECORD;
        for (long i = 0; i < RECORD; i++)
            record[i] = byte_of(id, i);
        record[0] = (unsigned char)id;
        record[1] = (unsigned char)(id >> 8);
    }
    write_all(shared, all, (size_t)RECORDS * RECORD);
    free(all);
    SYS(fsync(shared));
    forget(shared);
    EXPECT(lseek(shared, 0, SEEK_SET), 0);
    in_threads(READERS, read_records);
    for (long id = 0; id < RECORDS; id++)
        CHECK(seen[id]);
    puts("records");
}

int main(int argc, char **argv)
{
    long threads = argument(argc, argv, 1, 200), limit = argument(argc, argv, 2, 0);
    struct rlimit files_limit;
    char path[64];
    pthread_attr_t small;

    begin(100);
    SYS(getrlimit(RLIMIT_NOFILE, &files_limit));
    files_limit.rlim_cur = files_limit.rlim_max;
    SYS(setrlimit(RLIMIT_NOFILE, &files_limit));
    if (threads > (long)files_limit.rlim_cur - 200)
        threads = (long)files_limit.rlim_cur - 200;
    CHECK(mkdtemp(directory) != NULL);
    files = calloc((size_t)threads, sizeof *files);
    pthread_t *ids = calloc((size_t)threads, sizeof *ids);
    CHECK(files && ids);
    for (long i = 0; i < threads; i++) {
        snprintf(path, sizeof path, "%s/%ld", directory, i);
        files[i] = SYS(open(path, O_RDWR | O_CREAT | O_EXCL, 0600));
        SYS(unlink(path));
        fill(files[i], i, SIZE);
    }
    SYS(syncfs(files[0]));
    for (long i = 0; i < threads; i++) {
        forget(files[i]);
        EXPECT(lseek(files[i], 0, SEEK_SET), 0);
    }
    ZERO(pthread_attr_init(&small));
    ZERO(pthread_attr_setstacksize(&small, 128 << 10));
    for (long i = 0; i < threads; i++)
        ZERO(pthread_create(&ids[i], &small, read_one, (void *)i));
    gate_wait(&reading, threads);
    pthread_t counter = start(count, NULL);
    gate_add(&go, 1);
    for (long i = 0; i < threads; i++)
        join(ids[i]);
    over = 1;
    join(counter);
    if (limit && most > limit)
        FAIL("%ld kernel threads, with %ld that read", most, threads);
    puts("read");
    snprintf(path, sizeof path, "%s/records", directory);
    shared = SYS(open(path, O_RDWR | O_CREAT | O_EXCL, 0600));
    SYS(unlink(path));
    records();
    SYS(rmdir(directory));
    return finish();
}
