#include "real.h"

#include "glibc.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <string.h>

/* What glibc had for its own use before 2.34 (elf/dl-libc.c), and its flag __RTLD_DLOPEN. libdl need not be there then, and its
 * dlsym calls pthread_once and others, which the library interposes and would look for by it. */
extern void *__libc_dlopen_mode(const char *, int) __attribute__((weak));
extern void *__libc_dlsym(void *, const char *) __attribute__((weak));
#define FROM_LIBC ((int)0x80000000)

/* The loader's list of objects. To ask the loader itself might allocate, by an allocator that calls what the library interposes
 * before it knows what to do. */
extern struct r_debug _r_debug __attribute__((weak));

static const struct link_map *loaded(const char *object)
{
    const struct link_map *map = &_r_debug ? _r_debug.r_map : NULL;
    for (; map; map = map->l_next) {
        const char *slash = map->l_name ? strrchr(map->l_name, '/') : NULL;
        if (slash && strcmp(slash + 1, object) == 0)
            break;
    }
    return map;
}

/* The default version of what an object exports by that name. */
static void *exported(const struct link_map *map, const char *name)
{
    const uint32_t *table = NULL;
    const ElfW(Sym) *symbol = NULL;
    const ElfW(Half) *version = NULL;
    const char *names = NULL;
    uint32_t hash = 5381;
    for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++) {
        const void *at = (const void *)d->d_un.d_ptr; /* NOLINT(performance-no-int-to-ptr) */
        table = d->d_tag == DT_GNU_HASH ? at : table;
        symbol = d->d_tag == DT_SYMTAB ? at : symbol;
        version = d->d_tag == DT_VERSYM ? at : version;
        names = d->d_tag == DT_STRTAB ? at : names;
    }
    if (!table || !symbol || !version || !names)
        return NULL;
    for (const char *c = name; *c; c++)
        hash = hash * 33 + (unsigned char)*c;
    const uint32_t *bucket = table + 4 + table[2] * 2, *chain = bucket + table[0];
    for (uint32_t i = bucket[hash % table[0]]; i >= table[1]; i++) {
        const ElfW(Sym) *s = &symbol[i];
        if ((chain[i - table[1]] | 1) == (hash | 1) && !(version[i] & 0x8000) && s->st_shndx != SHN_UNDEF &&
            ELF64_ST_TYPE(s->st_info) != STT_TLS && strcmp(names + s->st_name, name) == 0) {
            char *address = (char *)map->l_addr + s->st_value; /* NOLINT(performance-no-int-to-ptr) */
            return ELF64_ST_TYPE(s->st_info) == STT_GNU_IFUNC ? ((void *(*)(void))(void *)address)() : address;
        }
        if (chain[i - table[1]] & 1)
            break;
    }
    return NULL;
}

/* In the order of a program's objects: libpthread and what else has libc's names was in front of libc. */
static void *old_look_up(const char *name)
{
    static const char *const objects[] = {"libpthread.so.0", "libdl.so.2",           "librt.so.1", "libanl.so.1",
                                          "libresolv.so.2",  "ld-linux-x86-64.so.2", "libc.so.6"};
    void *fn = NULL;
    for (unsigned i = 0; i < sizeof objects / sizeof *objects && !fn; i++) {
        const struct link_map *object = loaded(objects[i]);
        if (object)
            fn = exported(object, name);
    }
    /* Where no object has it, one that asks whether libpthread is there by a weak reference has been told so by the name that
     * the library exports (libdl does that with pthread_once): then let it be there. */
    void *object = fn ? NULL : __libc_dlopen_mode("libpthread.so.0", RTLD_LAZY | FROM_LIBC);
    return object ? __libc_dlsym(object, name) : fn;
}

/* What RTLD_NEXT finds goes by the caller's address: that it is the library's, whoever of it calls, is all that counts. */
#if VT_OLD_GLIBC
static _Atomic bool ready;
static __thread volatile bool looking __attribute__((tls_model("initial-exec"))); /* as dlsym is declared to call nobody */

void vt_real_ready(void)
{
    atomic_store_explicit(&ready, true, memory_order_relaxed);
}

/* libdl's functions call pthread_once, which the library interposes: that must know what to do, and not look for it by them. */
static bool may_look(void)
{
    return atomic_load_explicit(&ready, memory_order_relaxed) && !looking;
}

void *vt_dlsym(void *handle, const char *name)
{
    if (!may_look() && (handle == RTLD_NEXT || handle == RTLD_DEFAULT))
        return old_look_up(name);
    bool was = looking;
    looking = true;
    void *fn = dlsym(handle, name);
    looking = was;
    return fn;
}

static void *of_version(const char *name, const char *version)
{
    if (!may_look())
        return NULL;
    looking = true;
    void *fn = dlvsym(RTLD_NEXT, name, version);
    looking = false;
    return fn;
}
#else
void vt_real_ready(void)
{
}

/* In libc.so.6 since 2.34, and in libdl.so.2 before; in both under the first version there was on x86-64. Weak, as whatever
 * else not every libc has: a loader that misses a symbol of a preloaded object ends the program. */
__asm__(".symver dlsym, dlsym@GLIBC_2.2.5");
__asm__(".symver dlvsym, dlvsym@GLIBC_2.2.5");
extern __typeof__(dlsym) dlsym __attribute__((weak));
extern __typeof__(dlvsym) dlvsym __attribute__((weak));

void *vt_dlsym(void *handle, const char *name)
{
    if (__builtin_expect(__libc_dlsym && __libc_dlopen_mode, 0) && (handle == RTLD_NEXT || handle == RTLD_DEFAULT))
        return old_look_up(name);
    return dlsym ? dlsym(handle, name) : NULL;
}

static void *of_version(const char *name, const char *version)
{
    return dlvsym && !__libc_dlsym ? dlvsym(RTLD_NEXT, name, version) : NULL;
}
#endif

/* By the linker: all entries lie in one section. */
extern struct vt_real_entry first[] __asm__("__start_vt_real") __attribute__((visibility("hidden")));
extern struct vt_real_entry end[] __asm__("__stop_vt_real") __attribute__((visibility("hidden")));

/* Before 2.35 RTLD_NEXT finds a function's first version, not that which programs are linked to now. What it means is another
 * thing if it is not libc's: then it is neither. */
static void *newer_than(void *fn, const char *name)
{
    static const char *const changed[][3] = {
        {"pthread_cond_init", "GLIBC_2.2.5", "GLIBC_2.3.2"},
        {"pthread_cond_destroy", "GLIBC_2.2.5", "GLIBC_2.3.2"},
        {"pthread_cond_wait", "GLIBC_2.2.5", "GLIBC_2.3.2"},
        {"pthread_cond_timedwait", "GLIBC_2.2.5", "GLIBC_2.3.2"},
        {"pthread_cond_signal", "GLIBC_2.2.5", "GLIBC_2.3.2"},
        {"pthread_cond_broadcast", "GLIBC_2.2.5", "GLIBC_2.3.2"},
        {"timer_create", "GLIBC_2.2.5", "GLIBC_2.3.3"},
        {"pthread_attr_getaffinity_np", "GLIBC_2.3.3", "GLIBC_2.3.4"},
        {"pthread_getaffinity_np", "GLIBC_2.3.3", "GLIBC_2.3.4"},
        {"pthread_setaffinity_np", "GLIBC_2.3.3", "GLIBC_2.3.4"},
        {"sched_getaffinity", "GLIBC_2.3.3", "GLIBC_2.3.4"},
        {"sched_setaffinity", "GLIBC_2.3.3", "GLIBC_2.3.4"},
        {"lio_listio", "GLIBC_2.2.5", "GLIBC_2.4"},
        {"lio_listio64", "GLIBC_2.2.5", "GLIBC_2.4"},
    };
    for (unsigned i = 0; i < sizeof changed / sizeof *changed; i++)
        if (strcmp(name, changed[i][0]) == 0 && fn == of_version(name, changed[i][1])) {
            void *newer = of_version(name, changed[i][2]);
            return newer ? newer : fn;
        }
    return fn;
}

/* Once the resolver's functions had only names of the implementation's; a macro of the headers is what programs call. */
static void *reserved(const char *name)
{
    char text[32] = "__";
    size_t length = strlen(name);
    if (!VT_OLD_GLIBC || strncmp(name, "res_", 4) != 0 || length > sizeof text - 3)
        return NULL;
    memcpy(text + 2, name, length + 1);
    return vt_dlsym(RTLD_NEXT, text);
}

void *vt_real_find(struct vt_real_entry *entry)
{
    void *fn = vt_dlsym(RTLD_NEXT, entry->name);
    if (fn)
        fn = newer_than(fn, entry->name);
    /* What libc keeps for old programs alone has only its first version, that of x86-64: __res_query and its
     * kin. */
    if (!fn)
        fn = of_version(entry->name, "GLIBC_2.2.5");
    if (!fn)
        fn = reserved(entry->name);
    atomic_store_explicit(&entry->function, fn, memory_order_relaxed);
    return fn;
}

void vt_real_find_all(void)
{
    for (struct vt_real_entry *e = first; e < end; e++)
        if (!atomic_load_explicit(&e->function, memory_order_relaxed))
            vt_real_find(e);
}
