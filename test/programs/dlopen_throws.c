/* A C program loads C++ code that throws, by main and by threads; pthread_exit and cancellation need an
 * unwinder too. */
#include "check.h"
#include <dlfcn.h>

static int (*module_throw)(int);

static void *run(void *arg)
{
    for (int i = 0; i < 20; i++) {
        EXPECT(module_throw(i), i + 1);
        sched_yield();
    }
    pthread_exit(arg);
}

static void *load(void *arg)
{
    char path[4096];
    void *module = dlopen(beside(path, sizeof path, "dlopen_throws_mod.so"), RTLD_NOW | RTLD_LOCAL);

    if (!module)
        FAIL("%s", dlerror());
    module_throw = (int (*)(int))dlsym(module, "module_throw");
    CHECK(module_throw != NULL);
    EXPECT(module_throw(3), 4);
    return arg;
}

int main(void)
{
    begin(20);
    /* C needs no unwinder. If there is one in the global scope, then libgcc's, which the module is written
     * for. */
    Dl_info info;
    void *raise_exception = dlsym(RTLD_DEFAULT, "_Unwind_RaiseException");
    CHECK(!raise_exception || (dladdr(raise_exception, &info) && strstr(info.dli_fname, "libgcc_s")));
    CHECK(dlsym(RTLD_DEFAULT, "unw_step") == NULL);
    join(start(load, NULL));
    in_threads(10, run);
    EXPECT(module_throw(5), 6);
    return finish();
}
