"""CONNS connections to a memcached, each with ROUNDS of set, get, multi-get, delete and incr. Every answer is checked."""
import asyncio
import hashlib
import random
import sys
import time

port, conns, rounds = map(int, sys.argv[1:4])
shared_keys = 64
operations = 0


def value_of(key, version, size):
    """Says what it is: any mixture of two values is seen."""
    head = f"{key}:{version}:{size}:".encode()
    seed = hashlib.sha256(head).digest()
    return head + (seed * (size // len(seed) + 1))[:size]


def verify(key, data):
    name, version, size, _ = data.split(b":", 3)
    if name.decode() != key or data != value_of(key, int(version), int(size)):
        raise AssertionError(f"{key}: wrong value {data[:60]!r}")
    return int(version)


class Connection:
    async def open(self):
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)

    async def set(self, key, data):
        self.writer.write(b"set %s 0 0 %d\r\n%s\r\n" % (key.encode(), len(data), data))
        await self.expect(b"STORED\r\n")

    async def expect(self, line):
        answer = await self.reader.readline()
        if answer != line:
            raise AssertionError(f"{answer!r} instead of {line!r}")

    async def get(self, *keys):
        self.writer.write(b"get %s\r\n" % b" ".join(k.encode() for k in keys))
        found = {}
        while (line := await self.reader.readline()) != b"END\r\n":
            word, key, _, size = line.split()
            assert word == b"VALUE", line
            data = await self.reader.readexactly(int(size) + 2)
            assert data[-2:] == b"\r\n", data[-10:]
            found[key.decode()] = data[:-2]
        return found

    async def command(self, line):
        self.writer.write(line)
        return await self.reader.readline()


async def client(number):
    global operations
    rand = random.Random(number)
    c = Connection()
    await c.open()
    for version in range(rounds):
        own = f"own{number}"
        await c.set(own, value_of(own, version, rand.choice((10, 100, 1000, 20000))))
        # nobody else writes it: it must be the newest
        assert verify(own, (await c.get(own))[own]) == version
        shared = f"shared{rand.randrange(shared_keys)}"
        await c.set(shared, value_of(shared, version, rand.randrange(3000)))
        keys = [f"shared{rand.randrange(shared_keys)}" for _ in range(8)]
        for key, data in (await c.get(*set(keys))).items():
            verify(key, data)
        assert (await c.command(b"incr counter 1\r\n"))[:-2].isdigit()
        if version % 10 == 9:
            await c.set(f"gone{number}", b"x")
            assert await c.command(b"delete gone%d\r\n" % number) == b"DELETED\r\n"
            assert not await c.get(f"gone{number}")
        operations += 5
    c.writer.close()


async def main():
    c = Connection()
    await c.open()
    await c.set("counter", b"0")
    await asyncio.gather(*(client(i) for i in range(conns)))
    count = int((await c.get("counter"))["counter"])
    assert count == conns * rounds, f"counter is {count}, not {conns * rounds}"


start = time.monotonic()
asyncio.run(main())
took = time.monotonic() - start
print(f"{conns} connections, {operations} operations, {operations / took:.0f} a second, every value right")
