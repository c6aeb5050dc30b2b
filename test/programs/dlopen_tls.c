/* A module with initialised static TLS arrives while many threads are parked; modules come and go under
 * others. */
#include "check.h"
#include <dlfcn.h>
#include <link.h>

static long *(*value_of)(void);
static char *(*text_of)(void);
static long *(*zero_of)(void);
static struct gate waiting = GATE, loaded = GATE, used = GATE, leave = GATE;
static int cycle;

static void use(long id)
{
    EXPECT(*value_of(), 0x123456789);
    EXPECT_STR(text_of(), "initial");
    EXPECT(*zero_of(), 0);
    *value_of() = id;
    *zero_of() = -id;
    sched_yield();
    EXPECT(*value_of(), id);
    EXPECT(*zero_of(), -id);
}

static void *run(void *arg)
{
    gate_add(&waiting, 1);
    for (int i = 1; i <= 3; i++) {
        gate_wait(&loaded, i);
        use((intptr_t)arg);
        gate_add(&used, 1);
    }
    gate_wait(&leave, 1);
    return NULL;
}

static void *fresh(void *arg)
{
    use((intptr_t)arg);
    return NULL;
}

static int stop;

static int count_object(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    CHECK(info->dlpi_phdr != NULL || info->dlpi_phnum == 0);
    ++*(int *)data;
    return 0;
}

static void *look_around(void *arg)
{
    (void)arg;
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
        int objects = 0;
        dl_iterate_phdr(count_object, &objects);
        CHECK(objects >= 2);
        CHECK(dlsym(RTLD_DEFAULT, "printf") != NULL);
        CHECK(dlsym(RTLD_DEFAULT, "there_is_no_such_name") == NULL);
        CHECK(dlerror() != NULL);
        CHECK(dlerror() == NULL);
        sched_yield();
    }
    return NULL;
}

static void *load_and_unload(void *arg)
{
    char path[4096];

    (void)arg;
    beside(path, sizeof path, "dlopen_dynamic_mod.so");
    for (int i = 0; i < 40; i++) {
        void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        CHECK(module != NULL);
        long (*bump)(void) = (long (*)(void))dlsym(module, "module_bump");
        int (*constructed)(void) = (int (*)(void))dlsym(module, "module_constructed");
        EXPECT(constructed(), 1);
        CHECK(bump() >= 43);
        ZERO(dlclose(module));
    }
    return NULL;
}

int main(int argc, char **argv)
{
    char path[4096];
    long count = argument(argc, argv, 1, 1000);
    pthread_t *threads = calloc((size_t)count, sizeof *threads);

    begin(30);
    beside(path, sizeof path, "dlopen_tls_mod.so");
    for (long i = 0; i < count; i++)
        threads[i] = start_number(run, i + 1);
    gate_wait(&waiting, count);
    for (cycle = 1; cycle <= 3; cycle++) {
        void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!module)
            FAIL("%s", dlerror());
        value_of = (long *(*)(void))dlsym(module, "module_value");
        text_of = (char *(*)(void))dlsym(module, "module_text");
        zero_of = (long *(*)(void))dlsym(module, "module_zero");
        CHECK(value_of && text_of && zero_of);
        gate_add(&loaded, 1);
        in_threads(20, fresh);
        gate_wait(&used, cycle * count);
        use(-1);
        ZERO(dlclose(module));
    }
    gate_add(&leave, 1);
    for (long i = 0; i < count; i++)
        join(threads[i]);
    puts("static TLS");

    pthread_t lookers[4], loaders[4];
    for (int i = 0; i < 4; i++) {
        lookers[i] = start(look_around, NULL);
        loaders[i] = start(load_and_unload, NULL);
    }
    for (int i = 0; i < 4; i++)
        join(loaders[i]);
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < 4; i++)
        join(lookers[i]);
    return finish();
}
