/* From the very first thread on, stdio locks and shared_ptr counts atomically. */
#include "check.h"
#include <memory>
#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#else
static const char __libc_single_threaded = 0; /* glibc before 2.32 */
#endif

static std::shared_ptr<int> shared;
static FILE *file;
static int started;

static void work()
{
    for (int i = 0; i < 200000; i++) {
        std::shared_ptr<int> copy = shared;
        if (*copy != 5)
            FAIL("the object is gone");
    }
    for (int i = 0; i < 20000; i++)
        fputs("line\n", file);
}

static void *run(void *)
{
    EXPECT(__libc_single_threaded, 0);
    __atomic_store_n(&started, 1, __ATOMIC_RELEASE);
    work();
    return nullptr;
}

int main()
{
    begin(30);
    shared = std::make_shared<int>(5);
    file = tmpfile();
    CHECK(file != nullptr);
    printf("before: %d\n", __libc_single_threaded);
    pthread_t t = start(run, nullptr);
    EXPECT(__libc_single_threaded, 0);
    while (!__atomic_load_n(&started, __ATOMIC_ACQUIRE))
        ;
    work();
    join(t);
    EXPECT(shared.use_count(), 1);
    rewind(file);
    char text[16];
    int lines = 0;
    while (fgets(text, sizeof text, file)) {
        EXPECT_STR(text, "line\n");
        lines++;
    }
    EXPECT(lines, 40000);
    return finish();
}
