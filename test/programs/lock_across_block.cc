/* Locks held over blocking calls by many threads: std::mutex over sleep and read, a FILE's lock, the loader's
 * lock. */
#include "check.h"
#include <dlfcn.h>
#include <mutex>

enum { THREADS = 16, PRINTERS = 50 };

static std::mutex mutex;
static long counter;
static int pipes[2];
static FILE *file;
static gate holding = GATE, release = GATE;

static void *over_sleep(void *arg)
{
    for (int i = 0; i < 5; i++) {
        std::lock_guard<std::mutex> guard(mutex);
        long before = counter;
        sleep_us(500);
        counter = before + 1;
    }
    return arg;
}

static void *over_read(void *arg)
{
    char byte;

    for (int i = 0; i < 20; i++) {
        std::lock_guard<std::mutex> guard(mutex);
        long before = counter;
        EXPECT(read(pipes[0], &byte, 1), 1);
        counter = before + 1;
    }
    return arg;
}

static void *feed(void *arg)
{
    for (int i = 0; i < THREADS * 20; i++) {
        write_all(pipes[1], "x", 1);
        if (i % 8 == 0)
            sched_yield();
    }
    return arg;
}

static void *hold_file(void *arg)
{
    flockfile(file);
    fputs("first ", file);
    gate_add(&holding, 1);
    gate_wait(&release, 1);
    sleep_us(2000);
    fputs("second\n", file);
    funlockfile(file);
    return arg;
}

static void *print(void *arg)
{
    for (int i = 0; i < 20; i++)
        fprintf(file, "line %d of %d\n", i, 20);
    gate_add(&release, 1);
    return arg;
}

static void *unrelated(void *arg)
{
    /* The printers wait for the file; this must go on all the same, and lets the holder go. */
    gate_add(&release, 1);
    return arg;
}

static void *load_slow(void *arg)
{
    char path[4096];

    for (int i = 0; i < 5; i++) {
        void *module = dlopen(beside(path, sizeof path, "dlopen_sleep_mod.so"), RTLD_NOW);
        CHECK(module != nullptr);
        int (*ready)() = reinterpret_cast<int (*)()>(dlsym(module, "module_ready"));
        EXPECT(ready(), 1);
        dlclose(module);
    }
    return arg;
}

/* The lines are the same, so that their order does not matter; each is one piece only if the lock holds over the sleep. */
static void *print_in_pieces(void *arg)
{
    flockfile(stdout);
    fputs("one ", stdout);
    sleep_us(500);
    fputs("line ", stdout);
    sched_yield();
    for (const char *s = "in pieces\n"; *s; s++)
        putc_unlocked(*s, stdout);
    funlockfile(stdout);
    return arg;
}

int main()
{
    begin(30);
    in_threads(THREADS, over_sleep);
    EXPECT(counter, THREADS * 5);
    puts("over sleep");

    SYS(pipe(pipes));
    pthread_t feeder = start(feed, nullptr);
    in_threads(THREADS, over_read);
    join(feeder);
    EXPECT(counter, THREADS * 25);
    puts("over read");

    file = tmpfile();
    CHECK(file != nullptr);
    pthread_t holder = start(hold_file, nullptr), printers[PRINTERS];
    gate_wait(&holding, 1);
    CHECK(ftrylockfile(file) != 0);
    for (auto &p : printers)
        p = start(print, nullptr);
    join(start(unrelated, nullptr));
    join(holder);
    for (auto &p : printers)
        join(p);
    rewind(file);
    char text[64];
    int lines = 0, n, of;
    CHECK(fgets(text, sizeof text, file));
    EXPECT_STR(text, "first second\n");
    while (fgets(text, sizeof text, file)) {
        CHECK(sscanf(text, "line %d of %d\n", &n, &of) == 2 && of == 20);
        lines++;
    }
    EXPECT(lines, PRINTERS * 20);
    puts("over a FILE");

    in_threads(50, print_in_pieces);
    puts("over stdout");

    in_threads(THREADS, load_slow);
    puts("over dlopen");
    return finish();
}
