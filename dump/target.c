#include "target.h"

#include "core.h"
#include "process.h"

#include <elf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct target target;

_Noreturn void die(int status, const char *format, ...)
{
    va_list ap;
    target_resume();
    fflush(stdout);
    fputs("vthread-dump: ", stderr);
    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
    fputc('\n', stderr);
    exit(status);
}

void *xalloc(size_t size)
{
    void *p = calloc(1, size ? size : 1);
    if (!p)
        die(1, "no memory");
    return p;
}

void *xgrow(void *p, size_t *capacity, size_t need, size_t size)
{
    if (need <= *capacity)
        return p;
    size_t n = *capacity ? *capacity * 2 : 64;
    if (n < need)
        n = need;
    p = realloc(p, n * size);
    if (!p)
        die(1, "no memory");
    *capacity = n;
    return p;
}

uint64_t monotonic(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* --- memory --------------------------------------------------------------------------------------------- */

void target_read_spans(struct span *spans, size_t n)
{
    if (target.live) {
        process_read(spans, n);
        return;
    }
    for (size_t i = 0; i < n; i++)
        spans[i].ok = core_read(spans[i].addr, spans[i].to, spans[i].size);
}

bool target_read(uint64_t addr, void *to, size_t size)
{
    struct span s = {addr, size, to, false};
    target_read_spans(&s, 1);
    return s.ok;
}

/* Pages by their number; open addressing, and all forgotten when it is full. */
#define CACHE_PAGES 4096
static struct page {
    uint64_t number; /* + 1; 0: free */
    uint8_t data[4096];
} * cache[CACHE_PAGES];

static const uint8_t *page_of(uint64_t number)
{
    struct page **slot = &cache[number * UINT64_C(0x9e3779b97f4a7c15) >> 52];
    if (!*slot)
        *slot = xalloc(sizeof **slot);
    if ((*slot)->number != number + 1) {
        (*slot)->number = 0;
        if (!target_read(number << 12, (*slot)->data, 4096))
            return NULL;
        (*slot)->number = number + 1;
    }
    return (*slot)->data;
}

bool target_read_code(uint64_t addr, void *to, size_t size)
{
    char *out = to;
    while (size) {
        size_t at = addr & 4095, n = 4096 - at < size ? 4096 - at : size;
        const uint8_t *page = page_of(addr >> 12);
        if (!page)
            return target_read(addr, out, size);
        memcpy(out, page + at, n);
        addr += n;
        out += n;
        size -= n;
    }
    return true;
}

void target_read_text(uint64_t addr, char *to, size_t size)
{
    size_t n = 0;
    while (addr && n + 1 < size && target_read(addr + n, to + n, 1) && to[n])
        n++;
    to[n] = '\0';
}

const void *target_core_at(uint64_t addr, size_t size)
{
    return target.live ? NULL : core_at(addr, size);
}

/* --- images --------------------------------------------------------------------------------------------- */

const struct mapping *target_mapping(uint64_t addr)
{
    size_t lo = 0, hi = target.nmappings;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (addr >= target.mappings[mid].end)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < target.nmappings && addr >= target.mappings[lo].start ? &target.mappings[lo] : NULL;
}

struct image {
    Elf64_Ehdr header;
    Elf64_Phdr *program;
    uint64_t base, bias;
};

/* The ELF headers at base. */
static bool read_image(uint64_t base, struct image *im)
{
    im->base = base;
    if (!target_read_code(base, &im->header, sizeof im->header) || memcmp(im->header.e_ident, ELFMAG, SELFMAG) != 0 ||
        im->header.e_ident[EI_CLASS] != ELFCLASS64 || im->header.e_phentsize != sizeof(Elf64_Phdr) || im->header.e_phnum > 1000)
        return false;
    im->program = xalloc(im->header.e_phnum * sizeof(Elf64_Phdr));
    if (!target_read_code(base + im->header.e_phoff, im->program, im->header.e_phnum * sizeof(Elf64_Phdr))) {
        free(im->program);
        return false;
    }
    for (unsigned i = 0; i < im->header.e_phnum; i++) {
        if (im->program[i].p_type == PT_LOAD) {
            im->bias = base - (im->program[i].p_vaddr & ~UINT64_C(4095)) + (im->program[i].p_offset & ~UINT64_C(4095));
            return true;
        }
    }
    free(im->program);
    return false;
}

/* .eh_frame_hdr (Linux Standard Base, "Exception Frames"): version, three encodings, the address of
 * .eh_frame, the number of entries, the table. */
static void read_eh_frame_hdr(struct module *m, uint64_t addr)
{
    uint8_t head[4];
    uint32_t count;
    if (!target_read_code(addr, head, sizeof head) || head[0] != 1)
        return;
    /* What linkers write: four bytes relative to here, four bytes, pairs of four bytes relative to the
     * header. */
    if ((head[1] & 0x0f) != 0x0b || head[2] != 0x03 || head[3] != 0x3b || !target_read_code(addr + 8, &count, 4))
        return;
    m->eh_frame_hdr = addr;
    m->fde_count = count;
    m->fde_table = addr + 12;
}

static void note_images(void)
{
    size_t capacity = 0;
    free(target.modules);
    target.modules = NULL;
    target.nmodules = 0;
    for (size_t i = 0; i < target.nmappings; i++) {
        const struct mapping *map = &target.mappings[i];
        struct image im = {0};
        if (map->offset || (!*map->path && target.live) || strncmp(map->path, "/dev/", 5) == 0 || !read_image(map->start, &im))
            continue;
        struct module m = {.lo = map->start, .hi = map->end, .bias = im.bias, .path = map->path};
        for (unsigned k = 0; k < im.header.e_phnum; k++) {
            uint64_t at = im.bias + im.program[k].p_vaddr;
            if (im.program[k].p_type == PT_LOAD && at + im.program[k].p_memsz > m.hi)
                m.hi = at + im.program[k].p_memsz;
            if (im.program[k].p_type == PT_GNU_EH_FRAME)
                read_eh_frame_hdr(&m, at);
        }
        free(im.program);
        target.modules = xgrow(target.modules, &capacity, target.nmodules + 1, sizeof m);
        target.modules[target.nmodules++] = m;
    }
}

static const struct module *lookup(uint64_t addr)
{
    for (size_t i = target.nmodules; i-- > 0;)
        if (addr >= target.modules[i].lo)
            return addr < target.modules[i].hi ? &target.modules[i] : NULL;
    return NULL;
}

const struct module *target_module(uint64_t addr)
{
    static unsigned looks;
    const struct module *m = lookup(addr);
    if (!m && target.live && looks < 8 && !target_mapping(addr)) {
        looks++; /* loaded since */
        process_mappings();
        note_images();
        m = lookup(addr);
    }
    return m;
}

/* The note of the library in the image at base, or 0. */
static uint64_t table_of(uint64_t base)
{
    struct image im = {0};
    uint64_t found = 0;
    if (!read_image(base, &im))
        return 0;
    for (unsigned i = 0; i < im.header.e_phnum && !found; i++) {
        const Elf64_Phdr *p = &im.program[i];
        uint64_t at = im.bias + p->p_vaddr, end = at + p->p_filesz;
        if (p->p_type != PT_NOTE || p->p_filesz > 65536)
            continue;
        while (at + 12 <= end) {
            uint32_t n[3];
            char name[8];
            int64_t distance;
            uint64_t align = p->p_align == 8 ? 7 : 3;
            if (!target_read_code(at, n, sizeof n))
                break;
            uint64_t desc = at + ((12 + (uint64_t)n[0] + align) & ~align);
            if (n[0] == 8 && n[1] == 8 && n[2] == 1 && target_read_code(at + 12, name, 8) && memcmp(name, "vthread", 8) == 0 &&
                target_read_code(desc, &distance, 8)) {
                found = desc + (uint64_t)distance;
                break;
            }
            at = desc + ((n[1] + align) & ~align);
        }
    }
    free(im.program);
    return found;
}

uint64_t target_find_table(void)
{
    for (size_t i = 0; i < target.nmodules; i++) {
        uint64_t at = table_of(target.modules[i].lo);
        if (at)
            return at;
    }
    return 0;
}

/* --- opening -------------------------------------------------------------------------------------------- */

void target_open(pid_t pid, bool tolerant)
{
    target.live = true;
    target.pid = pid;
    process_open(pid, tolerant);
    process_mappings();
    note_images();
}

void target_open_core(const char *core, const char *exe)
{
    target.core = core;
    core_open(core, exe);
    note_images();
}

void target_stop(void)
{
    if (target.live)
        process_stop();
}

void target_resume(void)
{
    if (target.live)
        process_resume();
}
