"""Runs cases and makes tables of them, in Markdown."""
from engine import Design, Scheduler
from machine import Machine
from work import CASES

UNTIL = 1e10    # ns; no case comes near


def design(**differs):
    d = Design()
    for name, value in differs.items():
        assert hasattr(Design, name), name
        setattr(d, name, value)
    return d


class Result:
    """Of one run, from the moment on at which the workload has begun in earnest."""

    def __init__(self, prices, n, make, d, size=1, seed=1):
        self.n = n
        m = Machine(prices, seed)
        s = self.s = Scheduler(m, n, d)
        w = make(s, size)
        m.at(w.began, lambda t: self.begin(t, w))
        m.run(UNTIL, lambda: w.over() and m.now > w.began)
        self.work = w
        for c in s.carriers:
            if c.asleep:
                c.t = max(c.t, m.now)
            c.doing(c.kind)
        self.ns = max(m.now - w.began, 1.0)
        self.ops = max(w.ops, 1)
        self.count = {k: v / self.ops for k, v in s.count.items()}
        total = sum(sum(c.spent.values()) for c in s.carriers)
        self.share = {k: sum(c.spent[k] for c in s.carriers) / total for k in s.carriers[0].spent}
        self.share['lines'] = sum(c.lines + c.locks for c in s.carriers) / total
        self.rate = self.ops / self.ns * 1e9
        self.delays = sorted(s.delays)
        self.response = sorted(w.response)
        named = {'idle_lock': s.idle_lock, 'nidle, searching': s.word, 'globq.lock': s.globq_lock, 'globq.len': s.globq_len,
                 'vt_pool.lock': s.pool, 'slot class lock': s.classes}
        if hasattr(w, 'm1'):
            named['mutex word'], named['bucket'] = w.m1.word, w.m1
        # Of lines that each place has: all transfers, and how busy the busiest is.
        places = {}
        for name in 'head', 'tail', 'next_line', 'state', 'timer_lock':
            lines = [getattr(p, name) for p in s.places]
            most = max(lines, key=lambda x: x.busy)
            places['of places: ' + name] = sum(x.moves for x in lines) / self.ops, most.busy / self.ns
        self.lines = {k: (x.moves / self.ops, max(x.busy, getattr(x, 'held', 0.0)) / self.ns) for k, x in named.items()}
        self.lines.update(places)

    def begin(self, t, w):
        s = self.s
        w.ops = 0
        del w.response[:], s.delays[:]
        s.count = dict.fromkeys(s.count, 0)
        lines = [s.idle_lock, s.word, s.globq_lock, s.globq_len, s.pool, s.classes]
        for p in s.places:
            lines += [p.head, p.tail, p.slots, p.next_line, p.state, p.timer_lock]
        if hasattr(w, 'm1'):
            lines += [w.m1, w.m1.word]
        for x in lines:
            x.moves, x.busy = 0, 0.0
            if hasattr(x, 'held'):
                x.held, x.taken, x.contended = 0.0, 0, 0
        for c in s.carriers:
            if c.asleep:
                c.t = max(c.t, t)
            c.doing(c.kind)
            c.spent = dict.fromkeys(c.spent, 0.0)
            c.lines = c.locks = 0.0


def at(values, share):
    return values[min(len(values) - 1, int(len(values) * share))] / 1000 if values else float('nan')


def cell(x):
    if x != x:
        return ''
    if x == 0:
        return '0'
    return f'{x:.0f}' if abs(x) >= 100 else f'{x:.1f}' if abs(x) >= 10 else f'{x:.2f}' if abs(x) >= 0.1 else f'{x:.3f}'


def markdown(head, rows):
    rows = [head] + rows
    width = [max(len(r[i]) for r in rows) for i in range(len(head))]
    out = []
    for k, r in enumerate(rows):
        out.append('| ' + ' | '.join(x.ljust(w) if i == 0 else x.rjust(w) for i, (x, w) in enumerate(zip(r, width))) + ' |')
        if k == 0:
            out.append('|' + '|'.join('-' * (w + 2) if i == 0 else '-' * (w + 1) + ':' for i, w in enumerate(width)) + '|')
    return '\n'.join(out)


HEAD = ['carriers', 'ops/s/carrier', 'of one', 'running %', 'switching %', 'looking %', 'calls %', 'asleep %', 'lines, locks %',
        'steals/op', 'looks/op', 'in vain/op', 'probes/op', 'calls/op', 'sleeps/op', 'delay p50 us', 'p99', 'response p50 us', 'p99']


def row(r, one):
    rate = r.rate / r.n
    return [str(r.n), f'{rate:.0f}', f'{rate / one:.2f}'] + [
        f'{100 * r.share[k]:.1f}' for k in ('run', 'switch', 'look', 'call', 'sleep', 'lines')] + [
        cell(r.count[k]) for k in ('steals', 'scans', 'vain', 'probes', 'called', 'sleeps')] + [
        cell(at(r.delays, 0.5)), cell(at(r.delays, 0.99)), cell(at(r.response, 0.5)), cell(at(r.response, 0.99))]


def main_tables(prices, carriers, size, out, only=None):
    """One table a workload; returns the results by (name, n)."""
    results = {}
    for name, make in CASES:
        if only and only not in name:
            continue
        one, rows = None, []
        for n in carriers:
            r = results[name, n] = Result(prices, n, make, design(), size)
            one = one or r.rate / r.n
            rows.append(row(r, one))
        out(f'**{name}**\n\n{markdown(HEAD, rows)}\n')
    return results


def line_table(results, carriers, out):
    """How busy each shared line is at the two largest numbers of carriers."""
    big = carriers[-2:]
    names = [name for name, _ in CASES if (name, big[-1]) in results]
    keys = sorted({k for name in names for n in big for k in results[name, n].lines},
                  key=lambda k: -max(results[name, n].lines.get(k, (0, 0))[1] for name in names for n in big))
    rows = []
    for k in keys:
        cells = []
        for name in names:
            for n in big[-2:-1]:
                moves, busy = results[name, n].lines.get(k, (float('nan'),) * 2)
                cells.append(f'{cell(moves)}, {cell(busy)}' if busy == busy else '')
        rows.append([k] + cells)
    out(f'**Shared lines at {big[0]} carriers**: transfers an op, and the share of the time in which the line is under way or the lock held;\nof what each place has, the transfers of all, and the busiest.\n')
    out(markdown(['line'] + names, rows) + '\n')


WAS = {'idle_list': 'single', 'spin_places': 0, 'own_first': False}
VARIANTS = [
    ('as it is', {}),
    ('as it was', WAS),
    ('  idle list linked both ways', {**WAS, 'idle_list': 'double'}),
    ('  spin looks at 8 places a turn', {**WAS, 'spin_places': 8}),
    ('  own work first', {**WAS, 'own_first': True}),
    ('bits for idle places, no list', {'idle_list': 'mask'}),
    ('thieves at most an eighth', {'thieves': 'n/8'}),
    ('bits, thieves at most an eighth', {'idle_list': 'mask', 'thieves': 'n/8'}),
    ('an eighth may be called at once', {'searchers': 'n/8'}),
    ('the same, by who has found work', {'searchers': 'n/8', 'by_finders': True}),
    ('own socket first', {'near_first': True}),
    ('bits for queues of two and more', {'hint': True}),
]


def variant_tables(prices, n, size, out, only=None):
    for name, make in CASES:
        if only not in name if only else name in ('requests at 95 %', 'pairs', 'mutex, 1000 threads'):
            continue    # these three: all the same
        rows, one = [], None
        for label, differs in VARIANTS:
            d = design(**{k: max(1, n // 8) if v == 'n/8' else v for k, v in differs.items()})
            r = Result(prices, n, make, d, size)
            one = one or r.rate
            rows.append([label, f'{r.rate / one:.3f}'] + [f'{100 * r.share[k]:.1f}' for k in ('look', 'sleep', 'lines')] + [
                cell(r.count['steals']), cell(r.count['probes']), cell(r.count['called']), cell(r.lines['idle_lock'][1]),
                cell(r.lines['nidle, searching'][1]), cell(at(r.delays, 0.5)), cell(at(r.delays, 0.99)),
                cell(at(r.response, 0.5)), cell(at(r.response, 0.99))])
        out(f'**{name}**, {n} carriers\n\n' + markdown(
            ['design', 'ops/s', 'looking %', 'asleep %', 'lines, locks %', 'steals/op', 'probes/op', 'calls/op', 'idle_lock',
             'nidle line', 'delay p50 us', 'p99', 'response p50 us', 'p99'], rows) + '\n')
