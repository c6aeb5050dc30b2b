#include "symbols.h"

#include "target.h"
#include "unwind.h"

#include <elfutils/libdwfl.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* libstdc++'s. */
extern char *__cxa_demangle(const char *, char *, size_t *, int *);

static Dwfl *dwfl;
static bool want_lines;
static const struct module *library;

void symbols_open(bool lines)
{
    static const Dwfl_Callbacks live = {
        .find_elf = dwfl_linux_proc_find_elf,
        .find_debuginfo = dwfl_standard_find_debuginfo,
    };
    static const Dwfl_Callbacks dead = {
        .find_elf = dwfl_build_id_find_elf,
        .find_debuginfo = dwfl_standard_find_debuginfo,
    };
    want_lines = lines;
    unsetenv("DEBUGINFOD_URLS"); /* no network while somebody looks for a fault */
    uint64_t table = target_find_table();
    library = table ? target_module(table) : NULL;
    dwfl = dwfl_begin(target.live ? &live : &dead);
    if (!dwfl)
        return;
    if (target.live) {
        if (dwfl_linux_proc_report(dwfl, target.pid) != 0) {
            dwfl_end(dwfl);
            dwfl = NULL;
            return;
        }
    } else {
        int fd = open(target.core, O_RDONLY | O_CLOEXEC);
        Elf *elf;
        elf_version(EV_CURRENT);
        elf = fd >= 0 ? elf_begin(fd, ELF_C_READ_MMAP, NULL) : NULL;
        if (!elf || dwfl_core_file_report(dwfl, elf, *target.exe ? target.exe : NULL) < 0) {
            dwfl_end(dwfl);
            dwfl = NULL;
            return;
        }
    }
    dwfl_report_end(dwfl, NULL, NULL);
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static const char *demangled(const char *name)
{
    int status;
    char *plain = strncmp(name, "_Z", 2) == 0 ? __cxa_demangle(name, NULL, NULL, &status) : NULL;
    return plain ? plain : strdup(name);
}

static void look_up(struct symbol *s, uint64_t ip)
{
    bool exact = ip & IP_EXACT;
    uint64_t addr = ip & ~IP_EXACT, inside = exact ? addr : addr - 1;
    GElf_Off offset = 0;
    GElf_Sym sym;
    const struct module *m = target_module(addr);
    if (m) {
        s->module = *m->path ? last_part(m->path) : "[vdso]";
        s->ours = m == library;
        s->offset = addr - m->bias;
    }
    Dwfl_Module *mod = dwfl ? dwfl_addrmodule(dwfl, inside) : NULL;
    if (!mod)
        return;
    const char *name = dwfl_module_addrinfo(mod, inside, &offset, &sym, NULL, NULL, NULL);
    if (name) {
        s->function = demangled(name);
        s->offset = offset + (exact ? 0 : 1);
    }
    Dwfl_Line *line = want_lines ? dwfl_module_getsrc(mod, inside) : NULL;
    const char *path = line ? dwfl_lineinfo(line, NULL, &s->line, NULL, NULL, NULL) : NULL;
    if (path) {
        s->path = strdup(path);
        s->file = last_part(s->path);
    }
}

/* By address. */
static struct known {
    uint64_t ip;
    struct symbol *symbol;
} * known;
static size_t known_mask, nknown;

const struct symbol *symbol_of(uint64_t ip)
{
    if (2 * nknown >= known_mask) {
        struct known *old = known;
        size_t n = known ? known_mask + 1 : 0;
        known_mask = n ? 2 * n - 1 : 1023;
        known = xalloc((known_mask + 1) * sizeof *known);
        for (size_t i = 0; i < n; i++) {
            if (!old[i].symbol)
                continue;
            size_t at = old[i].ip * UINT64_C(0x9e3779b97f4a7c15) >> 20 & known_mask;
            while (known[at].symbol)
                at = (at + 1) & known_mask;
            known[at] = old[i];
        }
        free(old);
    }
    size_t at = ip * UINT64_C(0x9e3779b97f4a7c15) >> 20 & known_mask;
    while (known[at].symbol && known[at].ip != ip)
        at = (at + 1) & known_mask;
    if (!known[at].symbol) {
        known[at] = (struct known){ip, xalloc(sizeof(struct symbol))};
        nknown++;
        look_up(known[at].symbol, ip);
    }
    return known[at].symbol;
}

struct symbol symbol_of_data(uint64_t addr)
{
    struct symbol s = {0};
    GElf_Off offset = 0;
    GElf_Sym sym;
    Dwfl_Module *mod = dwfl && target_module(addr) ? dwfl_addrmodule(dwfl, addr) : NULL;
    const char *name = mod ? dwfl_module_addrinfo(mod, addr, &offset, &sym, NULL, NULL, NULL) : NULL;
    if (name && GELF_ST_TYPE(sym.st_info) == STT_OBJECT && offset < sym.st_size) {
        s.function = demangled(name);
        s.offset = offset;
    }
    return s;
}
