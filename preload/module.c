/* dlopen and dlclose: libc initialises the static TLS of a module that comes late only in the threads that it
 * knows of. */
#include "life.h"
#include "preload.h"
#include "real.h"
#include "stock.h"
#include "sys.h"
#include "tcb.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *dlopen_function(const char *, int);

int vt_dlopen(const char *file, int mode, void *caller, void **result);
dlopen_function *vt_dlopen_real(void);

dlopen_function *vt_dlopen_real(void)
{
    return vt_real(dlopen);
}

/* The object that holds addr, if names mean something else to it than to us: it has a RUNPATH or RPATH. */
static struct link_map *with_own_path(void *addr)
{
    Dl_info info;
    struct link_map *map = NULL;
    if (!vt_real(dladdr1)(addr, &info, (void **)&map, RTLD_DL_LINKMAP) || !map)
        return NULL;
    for (const ElfW(Dyn) *d = map->l_ld; d && d->d_tag != DT_NULL; d++)
        if (d->d_tag == DT_RUNPATH || d->d_tag == DT_RPATH)
            return map;
    return NULL;
}

static bool fits(const char *path)
{
    unsigned char head[20];
    long fd = vt_sys4(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return false;
    long n = vt_sys3(SYS_read, fd, (long)head, sizeof head);
    vt_sys1(SYS_close, fd);
    return n == sizeof head && memcmp(head, ELFMAG, SELFMAG) == 0 && head[EI_CLASS] == ELFCLASS64 && head[18] == EM_X86_64;
}

/* Where the loader would find file for the object map: the first directory of its search path that has it.
 * False: let the loader look. */
static bool search(struct link_map *map, const char *file, char *path, size_t size)
{
    Dl_serinfo head, *all;
    bool found = false;
    if (vt_real(dlinfo)(map, RTLD_DI_SERINFOSIZE, &head) || !(all = malloc(head.dls_size)))
        return false;
    all->dls_size = head.dls_size;
    all->dls_cnt = head.dls_cnt;
    if (!vt_real(dlinfo)(map, RTLD_DI_SERINFOSIZE, all) && !vt_real(dlinfo)(map, RTLD_DI_SERINFO, all)) {
        for (unsigned i = 0; i < all->dls_cnt && !found; i++) {
            int n = snprintf(path, size, "%s/%s", all->dls_serpath[i].dls_name, file);
            found = n > 0 && (size_t)n < size && fits(path);
        }
    }
    free(all);
    return found;
}

/* Called by dlopen: 1 and the result if there are virtual threads, 0: not our business. */
int vt_dlopen(const char *file, int mode, void *caller, void **result)
{
    if (!vt_on() || vt_threads_living() == 0) {
        vt_tcb_module_comes();
        return 0;
    }
    char path[PATH_MAX];
    struct link_map *map;
    if (file && strchr(file, '$'))
        return 0; /* $ORIGIN is the caller's: rare enough to do without */
    bool begun = vt_modules_begin();
    void *handle = NULL;
    if (file && *file && !strchr(file, '/') && (map = with_own_path(caller)) &&
        !(handle = vt_real(dlopen)(file, (mode & ~RTLD_DEEPBIND) | RTLD_NOLOAD)) && search(map, file, path, sizeof path))
        file = path;
    *result = vt_real(dlopen)(file, mode);
    if (handle)
        vt_real(dlclose)(handle);
    vt_modules_end(begun);
    return 1;
}

VT_EXPORT int dlclose(void *handle)
{
    if (!vt_on() || vt_threads_living() == 0)
        return vt_real(dlclose)(handle);
    bool begun = vt_modules_begin();
    int ret = vt_real(dlclose)(handle);
    vt_modules_end(begun);
    return ret;
}
