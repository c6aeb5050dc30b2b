"""icecast_client.py PORT LISTENERS SECONDS: a source streams numbers to icecast; each listener must get them in order."""
import asyncio
import base64
import sys
import time

port, listeners, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
block = 1024  # bytes: 128 numbers of eight
received = 0
listening = set()


async def source(stop):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    login = base64.b64encode(b"source:secret").decode()
    writer.write(f"SOURCE /stream HTTP/1.0\r\nAuthorization: Basic {login}\r\nContent-Type: audio/mpeg\r\n\r\n".encode())
    assert b"200" in await reader.readuntil(b"\r\n\r\n")
    ready.set()
    at = 0
    while not stop.is_set():
        for _ in range(16):
            writer.write(b"".join(i.to_bytes(8, "big") for i in range(at, at + block // 8)))
            at += block // 8
        await writer.drain()
        await asyncio.sleep(0.02)
    writer.close()


async def listener(stop):
    global received
    for again in range(50):  # the source has its answer before its stream is there
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        writer.write(b"GET /stream HTTP/1.0\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 404 " not in head:
            break
        writer.close()
        await asyncio.sleep(0.1)
    assert b" 200 " in head, head
    rest, expected, mine = b"", None, 0
    listening.add(reader)
    while not stop.is_set():
        data = await asyncio.wait_for(reader.read(65536), 10)
        assert data, "the stream ends"
        received += len(data)
        mine += len(data)
        rest += data
        if expected is None:  # it begins anywhere: numbers are small, so their high bytes say where one starts
            if len(rest) < 64:
                continue
            first = next(o for o in range(8) if all(
                int.from_bytes(rest[o + 8 * i:o + 8 * i + 8], "big") + 1 == int.from_bytes(rest[o + 8 * i + 8:o + 8 * i + 16], "big")
                for i in range(5)))
            rest = rest[first:]
            expected = int.from_bytes(rest[:8], "big")
        whole = len(rest) // 8
        right = b"".join(i.to_bytes(8, "big") for i in range(expected, expected + whole))
        assert rest[:8 * whole] == right, f"wrong after {expected}"
        expected += whole
        rest = rest[8 * whole:]
    assert mine, "a listener got nothing"
    writer.close()


async def main():
    global ready
    ready = asyncio.Event()
    stop, end = asyncio.Event(), asyncio.Event()
    feeding = asyncio.create_task(source(end))
    await asyncio.wait_for(ready.wait(), 10)
    tasks = [asyncio.create_task(listener(stop)) for _ in range(listeners)]
    while len(listening) < listeners and not any(t.done() for t in tasks):
        await asyncio.sleep(0.01)
    begin = time.monotonic()
    await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    stop.set()
    await asyncio.gather(*tasks)
    end.set()
    await feeding
    print(f"rate={received / 1024 / (time.monotonic() - begin):.0f} errors=0")


asyncio.run(main())
