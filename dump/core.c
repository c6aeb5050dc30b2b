#include "core.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/procfs.h>
#include <sys/stat.h>
#include <sys/user.h>
#include <unistd.h>

static const uint8_t *file;
static size_t file_size;

static struct segment {
    uint64_t start, size; /* what the file has of it */
    const uint8_t *data;
} * segments;
static size_t nsegments;
static const char *executable; /* its path when the core was made: the first file that is mapped */

/* --- memory --------------------------------------------------------------------------------------------- */

static const struct segment *segment_of(uint64_t addr)
{
    size_t lo = 0, hi = nsegments;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (addr >= segments[mid].start + segments[mid].size)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < nsegments && addr >= segments[lo].start ? &segments[lo] : NULL;
}

const void *core_at(uint64_t addr, size_t size)
{
    const struct segment *s = segment_of(addr);
    return s && size <= s->start + s->size - addr ? s->data + (addr - s->start) : NULL;
}

/* From the file that is mapped there. */
static size_t read_file(uint64_t addr, void *to, size_t size)
{
    static const char *open_path;
    static int fd = -1;
    const struct mapping *m = target_mapping(addr);
    if (!m || !*m->path)
        return 0;
    if (m->path != open_path) {
        if (fd >= 0)
            close(fd);
        /* The executable may have been given by the user, from elsewhere. */
        fd = open(m->path == executable ? target.exe : m->path, O_RDONLY | O_CLOEXEC);
        open_path = m->path;
    }
    if (fd < 0)
        return 0;
    if (size > m->end - addr)
        size = m->end - addr;
    ssize_t n = pread(fd, to, size, (off_t)(m->offset + (addr - m->start)));
    if (n < 0)
        return 0;
    /* The last page of a file is filled up with zeros. */
    size_t rest = size - (size_t)n, page = (4096 - (addr + (size_t)n) % 4096) % 4096;
    if (n > 0 && rest <= page) {
        memset((char *)to + n, 0, rest);
        return size;
    }
    return (size_t)n;
}

bool core_read(uint64_t addr, void *to, size_t size)
{
    char *out = to;
    while (size) {
        const struct segment *s = segment_of(addr);
        size_t n;
        if (s) {
            n = s->start + s->size - addr < size ? s->start + s->size - addr : size;
            memcpy(out, s->data + (addr - s->start), n);
        } else if ((n = read_file(addr, out, size)) == 0) {
            return false;
        }
        out += n;
        addr += n;
        size -= n;
    }
    return true;
}

/* --- notes ---------------------------------------------------------------------------------------------- */

static size_t task_capacity, mapping_capacity;

static void note_status(const uint8_t *data, size_t size)
{
    struct elf_prstatus status;
    struct user_regs_struct u;
    if (size < sizeof status)
        return;
    memcpy(&status, data, sizeof status);
    memcpy(&u, &status.pr_reg, sizeof u);
    struct task t = {.tid = status.pr_pid, .state = '?', .stopped = true};
    t.regs = (struct registers){
        {u.rax, u.rdx, u.rcx, u.rbx, u.rsi, u.rdi, u.rbp, u.rsp, u.r8, u.r9, u.r10, u.r11, u.r12, u.r13, u.r14, u.r15, u.rip}};
    target.tasks = xgrow(target.tasks, &task_capacity, target.ntasks + 1, sizeof t);
    target.tasks[target.ntasks++] = t;
}

static void note_process(const uint8_t *data, size_t size)
{
    struct elf_prpsinfo info;
    if (size < sizeof info)
        return;
    memcpy(&info, data, sizeof info);
    target.pid = info.pr_pid;
    for (size_t i = 0; i < target.ntasks; i++)
        if (target.tasks[i].tid == target.pid)
            memcpy(target.tasks[i].comm, info.pr_fname, sizeof target.tasks[i].comm - 1);
}

/* NT_FILE (fs/binfmt_elf.c): count, page size, count times start, end, offset in pages, then the paths. */
static void note_files(const uint8_t *data, size_t size)
{
    uint64_t head[2];
    if (size < sizeof head)
        return;
    memcpy(head, data, sizeof head);
    if (head[0] > size / 24)
        return;
    const char *path = (const char *)data + 16 + head[0] * 24, *end = (const char *)data + size;
    const char *last = "";
    for (uint64_t i = 0; i < head[0] && path < end; i++) {
        uint64_t m[3];
        memcpy(m, data + 16 + i * 24, sizeof m);
        size_t length = strnlen(path, (size_t)(end - path));
        /* The same text for all pieces of a file: compared by address. */
        if (strlen(last) != length || memcmp(last, path, length) != 0)
            last = strndup(path, length);
        struct mapping map = {m[0], m[1], m[2] * head[1], last, false};
        target.mappings = xgrow(target.mappings, &mapping_capacity, target.nmappings + 1, sizeof map);
        target.mappings[target.nmappings++] = map;
        path += length + 1;
    }
}

static void read_notes(const uint8_t *data, size_t size)
{
    for (size_t at = 0; at + sizeof(Elf64_Nhdr) <= size;) {
        Elf64_Nhdr n;
        memcpy(&n, data + at, sizeof n);
        size_t name = at + sizeof n, desc = name + ((n.n_namesz + 3) & ~3u), next = desc + ((n.n_descsz + 3) & ~3u);
        if (next > size || next < at)
            return;
        if (n.n_namesz == 5 && memcmp(data + name, "CORE", 5) == 0) {
            if (n.n_type == NT_PRSTATUS)
                note_status(data + desc, n.n_descsz);
            else if (n.n_type == NT_PRPSINFO)
                note_process(data + desc, n.n_descsz);
            else if (n.n_type == NT_FILE)
                note_files(data + desc, n.n_descsz);
        }
        at = next;
    }
}

/* --- opening -------------------------------------------------------------------------------------------- */

static int by_start(const void *a, const void *b)
{
    uint64_t x = ((const struct mapping *)a)->start, y = ((const struct mapping *)b)->start;
    return x < y ? -1 : x > y;
}

static int segment_by_start(const void *a, const void *b)
{
    uint64_t x = ((const struct segment *)a)->start, y = ((const struct segment *)b)->start;
    return x < y ? -1 : x > y;
}

/* Mappings that the core has and NT_FILE does not: the vdso, anonymous memory. */
static void add_segment_mappings(const Elf64_Phdr *program, size_t n)
{
    size_t named = target.nmappings;
    for (size_t i = 0; i < n; i++) {
        const Elf64_Phdr *p = &program[i];
        bool there = false;
        if (p->p_type != PT_LOAD || !p->p_memsz)
            continue;
        for (size_t lo = 0, hi = named; lo < hi && !there;) {
            size_t mid = (lo + hi) / 2;
            there = p->p_vaddr >= target.mappings[mid].start && p->p_vaddr < target.mappings[mid].end;
            if (p->p_vaddr >= target.mappings[mid].end)
                lo = mid + 1;
            else
                hi = mid;
        }
        if (there)
            continue;
        struct mapping map = {p->p_vaddr, p->p_vaddr + p->p_memsz, 0, "", false};
        target.mappings = xgrow(target.mappings, &mapping_capacity, target.nmappings + 1, sizeof map);
        target.mappings[target.nmappings++] = map;
    }
    qsort(target.mappings, target.nmappings, sizeof *target.mappings, by_start);
}

void core_open(const char *core, const char *exe)
{
    struct stat st;
    Elf64_Ehdr h;
    int fd = open(core, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0)
        die(1, "%s: %s", core, strerror(errno));
    file_size = (size_t)st.st_size;
    if (file_size < sizeof h)
        die(1, "%s: not a core file", core);
    file = mmap(NULL, file_size, PROT_READ, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
    if (file == MAP_FAILED)
        die(1, "%s: %s", core, strerror(errno));
    close(fd);
    memcpy(&h, file, sizeof h);
    if (memcmp(h.e_ident, ELFMAG, SELFMAG) != 0 || h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_type != ET_CORE ||
        h.e_machine != EM_X86_64 || h.e_phentsize != sizeof(Elf64_Phdr))
        die(1, "%s: not a core file of x86-64", core);
    size_t n = h.e_phnum;
    if (n == PN_XNUM && h.e_shoff && h.e_shoff + sizeof(Elf64_Shdr) <= file_size)
        n = ((const Elf64_Shdr *)(const void *)(file + h.e_shoff))->sh_info;
    if (h.e_phoff > file_size || n > (file_size - h.e_phoff) / sizeof(Elf64_Phdr))
        die(1, "%s: the core file is cut off", core);
    const Elf64_Phdr *program = (const Elf64_Phdr *)(const void *)(file + h.e_phoff);
    segments = xalloc(n * sizeof *segments);
    for (size_t i = 0; i < n; i++) {
        const Elf64_Phdr *p = &program[i];
        if (p->p_offset > file_size)
            continue;
        uint64_t size = p->p_filesz < file_size - p->p_offset ? p->p_filesz : file_size - p->p_offset;
        if (p->p_type == PT_NOTE)
            read_notes(file + p->p_offset, size);
        else if (p->p_type == PT_LOAD && size)
            segments[nsegments++] = (struct segment){p->p_vaddr, size, file + p->p_offset};
    }
    qsort(segments, nsegments, sizeof *segments, segment_by_start);
    qsort(target.mappings, target.nmappings, sizeof *target.mappings, by_start);
    if (exe)
        strncpy(target.exe, exe, sizeof target.exe - 1);
    else if (target.nmappings)
        strncpy(target.exe, target.mappings[0].path, sizeof target.exe - 1);
    executable = target.nmappings ? target.mappings[0].path : NULL;
    add_segment_mappings(program, n);
    if (target.ntasks == 0)
        die(1, "%s: no thread in it", core);
}
