#include "symtab.h"

#if VT_OLD_GLIBC

#include "sys.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

struct object {
    const char *path, *base;
};

static int look_at(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct object *o = arg;
    const char *name = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    (void)size;
    if (!name || strcmp(name, "/libpthread.so.0") != 0)
        return 0;
    o->path = info->dlpi_name;
    o->base = (const char *)info->dlpi_addr; /* NOLINT(performance-no-int-to-ptr) */
    return 1;
}

/* Whether [offset, offset + n * each) is in the file. */
static bool inside(const struct vt_symtab *t, uint64_t offset, uint64_t n, uint64_t each)
{
    uint64_t size = (uint64_t)t->size;
    return offset <= size && n <= (size - offset) / each;
}

/* The header, and what follows it within a page: the program headers and the build-id, which tells one build from another. */
static bool same_build(const struct vt_symtab *t)
{
    return t->size > 4096 && memcmp(t->file, t->base, 1024) == 0;
}

static bool find_table(struct vt_symtab *t)
{
    const ElfW(Ehdr) *head = (const void *)t->file;
    const ElfW(Shdr) *section = (const void *)(t->file + head->e_shoff);
    if (head->e_shentsize != sizeof *section || head->e_shoff % 8 || !inside(t, head->e_shoff, head->e_shnum, sizeof *section))
        return false;
    for (unsigned i = 0; i < head->e_shnum; i++) {
        const ElfW(Shdr) *s = &section[i], *names;
        if (s->sh_type != SHT_SYMTAB || s->sh_link >= head->e_shnum || s->sh_offset % 8)
            continue;
        names = &section[s->sh_link];
        t->n = s->sh_size / sizeof(ElfW(Sym));
        t->symbols = t->file + s->sh_offset;
        t->names = t->file + names->sh_offset;
        t->names_size = names->sh_size;
        return inside(t, s->sh_offset, t->n, sizeof(ElfW(Sym))) && inside(t, names->sh_offset, t->names_size, 1) &&
               t->names_size && !t->names[t->names_size - 1];
    }
    return false;
}

void vt_symtab_open(struct vt_symtab *t)
{
    struct object o = {NULL, NULL};
    struct stat st;
    *t = (struct vt_symtab){0};
    if (!dl_iterate_phdr(look_at, &o))
        return;
    long fd = vt_sys4(SYS_openat, AT_FDCWD, (long)o.path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return;
    t->base = o.base;
    t->size = vt_sys2(SYS_fstat, fd, (long)&st) == 0 ? (long)st.st_size : 0;
    long mem = vt_sys6(SYS_mmap, 0, t->size, PROT_READ, MAP_PRIVATE, fd, 0);
    vt_sys1(SYS_close, fd);
    if (mem < 0 && mem > -4096)
        return;
    t->file = (const char *)mem; /* NOLINT(performance-no-int-to-ptr) */
    if (!same_build(t) || !find_table(t))
        vt_symtab_close(t);
}

void *vt_symtab_find(const struct vt_symtab *t, const char *name)
{
    const ElfW(Sym) *s = t->symbols;
    for (unsigned long i = 0; t->file && i < t->n; i++)
        if (s[i].st_shndx != SHN_UNDEF && s[i].st_shndx < SHN_LORESERVE && s[i].st_name < t->names_size &&
            strcmp(t->names + s[i].st_name, name) == 0)
            return (void *)(t->base + s[i].st_value);
    return NULL;
}

void vt_symtab_close(struct vt_symtab *t)
{
    if (t->file)
        vt_sys2(SYS_munmap, (long)t->file, t->size);
    *t = (struct vt_symtab){0};
}

#endif
