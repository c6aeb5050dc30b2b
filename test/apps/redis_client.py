"""redis_client.py PORT CONNECTIONS ROUNDS: values are set and read back in pipelines; a counter counts each round.

The values of a run stay: `redis_client.py PORT 0 0` only reads back what is there (after a restart).
"""
import asyncio
import hashlib
import random
import sys

port, conns, rounds = map(int, sys.argv[1:4])


def value_of(key, version):
    seed = hashlib.sha256(f"{key}:{version}".encode()).digest()
    return f"{key}:{version}:".encode() + seed * random.Random(f"{key}:{version}").choice((1, 10, 100, 1000))


class Connection:
    async def open(self):
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)

    def put(self, *words):
        words = [w if isinstance(w, bytes) else str(w).encode() for w in words]
        self.writer.write(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))

    async def get(self):
        line = (await self.reader.readuntil(b"\r\n"))[:-2]
        if line[:1] == b"$":
            if line == b"$-1":
                return None
            return (await self.reader.readexactly(int(line[1:]) + 2))[:-2]
        if line[:1] == b"*":
            return [await self.get() for _ in range(int(line[1:]))]
        if line[:1] == b"-":
            raise AssertionError(line)
        return int(line[1:]) if line[:1] == b":" else line[1:]


async def client(number):
    c = Connection()
    await c.open()
    for version in range(rounds):
        keys = [f"k{number}-{i}" for i in range(5)]
        for key in keys:
            c.put("SET", key, value_of(key, version))
        for key in keys:
            c.put("GET", key)
        c.put("INCR", "counter")
        for key in keys:
            assert await c.get() == b"OK"
        for key in keys:
            assert await c.get() == value_of(key, version), f"{key}: wrong value"
        assert await c.get() > 0
    c.writer.close()


async def main():
    c = Connection()
    await c.open()
    if conns:
        c.put("SET", "counter", 0)
        await c.get()
        await asyncio.gather(*(client(i) for i in range(conns)))
        c.put("GET", "counter")
        count = int(await c.get())
        assert count == conns * rounds, f"counter is {count}, not {conns * rounds}"
    c.put("KEYS", "k*-*")
    keys = await c.get()
    for key in keys:
        c.put("GET", key)
        value = await c.get()
        name, version, _ = value.split(b":", 2)
        assert name == key and value == value_of(name.decode(), int(version)), f"{key}: wrong value"
    print(f"{len(keys)} values right")


asyncio.run(main())
