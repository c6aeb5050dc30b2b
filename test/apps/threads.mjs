// Node: worker_threads with messages, shared memory and Atomics.wait; the thread pool of libuv (files, zlib, crypto,
// getaddrinfo); children. Prints what came out, which is the same in every run.
import { Worker, isMainThread, parentPort, workerData, MessageChannel } from 'node:worker_threads';
import { mkdtemp, readFile, writeFile, rm, readdir, stat } from 'node:fs/promises';
import { promisify } from 'node:util';
import { execFile } from 'node:child_process';
import { createServer, get } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import crypto from 'node:crypto';
import dns from 'node:dns/promises';
import zlib from 'node:zlib';

const n = Number(process.argv[2] || 12);

function worker() {
    const { kind, number, memory } = workerData;
    const words = new Int32Array(memory);
    if (kind === 'sum') {
        parentPort.on('message', (value) => {
            if (value === null) return parentPort.close();
            let sum = 0;
            for (let i = 0; i < 100000; i++) sum = (sum + value * i) % 1000003;
            parentPort.postMessage({ number, value, sum });
        });
    } else if (kind === 'turns') {
        // word 0 says whose turn it is
        for (let round = 0; round < 20; round++) {
            for (let now; (now = Atomics.load(words, 0)) % n !== number || now < round * n; ) Atomics.wait(words, 0, now, 60000);
            Atomics.add(words, 1, number);
            Atomics.add(words, 0, 1);
            Atomics.notify(words, 0);
        }
        parentPort.postMessage(Atomics.wait(words, 2, 0, 20));
    } else if (kind === 'throws') {
        throw new Error('as it should');
    } else {
        Atomics.wait(words, 2, 0); // until it is terminated
    }
}

function start(kind, number, memory = new SharedArrayBuffer(16)) {
    return new Worker(new URL(import.meta.url), { workerData: { kind, number, memory } });
}
const ended = (one) => new Promise((resolve) => one.once('exit', resolve));

async function workers() {
    const all = Array.from({ length: n }, (_, i) => start('sum', i));
    const answers = await Promise.all(all.map((one, i) => new Promise((resolve, reject) => {
        let total = 0, left = 10;
        one.on('error', reject);
        one.on('message', ({ number, value, sum }) => {
            if (number !== i) reject(new Error('a message from another worker'));
            total += value + sum % 7;
            if (!--left) one.postMessage(null);
        });
        one.on('exit', () => resolve(total));
        for (let j = 0; j < 10; j++) one.postMessage(j);
    })));
    console.log('workers:', answers.reduce((a, b) => a + b), new Set(answers).size);

    const memory = new SharedArrayBuffer(16), words = new Int32Array(memory);
    const turns = Array.from({ length: n }, (_, i) => start('turns', i, memory));
    const outcomes = await Promise.all(turns.map((one) => new Promise((resolve) => one.once('message', resolve))));
    await Promise.all(turns.map((one) => one.terminate()));
    console.log('turns:', words[0], words[1], ...new Set(outcomes));

    const thrower = start('throws', 0);
    const error = await new Promise((resolve) => thrower.once('error', resolve));
    const waiting = Array.from({ length: n }, (_, i) => start('waits', i));
    await Promise.all(waiting.map((one) => new Promise((resolve) => one.once('online', resolve))));
    const statuses = await Promise.all(waiting.map(async (one) => { const end = ended(one); await one.terminate(); return end; }));
    console.log('ends:', error.message, ...new Set(statuses));
}

async function pool() {
    const directory = await mkdtemp(join(tmpdir(), 'vthread-node.'));
    try {
        const digest = (data) => crypto.createHash('sha256').update(data).digest('hex');
        const sizes = Array.from({ length: 100 }, (_, i) => i * 997);
        await Promise.all(sizes.map((size, i) => writeFile(join(directory, `f${i}`), Buffer.alloc(size, i))));
        const texts = await Promise.all(sizes.map((_, i) => readFile(join(directory, `f${i}`))));
        const right = texts.filter((text, i) => digest(text) === digest(Buffer.alloc(sizes[i], i))).length;
        const bytes = (await Promise.all((await readdir(directory)).map((name) => stat(join(directory, name)))))
            .reduce((sum, { size }) => sum + size, 0);
        console.log('files:', right, bytes);
    } finally {
        await rm(directory, { recursive: true });
    }
    const data = Buffer.from('what is the same again and again, '.repeat(5000));
    const unpacked = await Promise.all(Array.from({ length: 20 }, async () =>
        promisify(zlib.gunzip)(await promisify(zlib.gzip)(data))));
    const keys = await Promise.all(Array.from({ length: 8 }, (_, i) => promisify(crypto.pbkdf2)('p', `salt${i}`, 2000, 16, 'sha512')));
    const found = await Promise.all(Array.from({ length: 20 }, () => dns.lookup('localhost', { family: 4 })));
    console.log('pool:', unpacked.filter((one) => one.equals(data)).length, keys.map((key) => key.toString('hex')).join(' '),
        ...new Set(found.map(({ address }) => address)));
}

async function server() {
    const http = createServer((request, response) => setTimeout(() => response.end(`you asked for ${request.url}`), 5));
    await new Promise((resolve) => http.listen(0, '127.0.0.1', resolve));
    const ask = (path) => new Promise((resolve, reject) => {
        get({ port: http.address().port, host: '127.0.0.1', path, agent: false }, async (response) => {
            let text = '';
            for await (const part of response) text += part;
            resolve(text === `you asked for ${path}`);
        }).on('error', reject);
    });
    const answers = await Promise.all(Array.from({ length: 200 }, (_, i) => ask(`/${i}`)));
    http.close();
    const children = await Promise.all(Array.from({ length: 10 }, (_, i) => promisify(execFile)('echo', [String(i)])));
    console.log('answers:', answers.filter(Boolean).length, children.map(({ stdout }) => stdout.trim()).join(''));
}

if (isMainThread) {
    await workers();
    await pool();
    await server();
    const { port1, port2 } = new MessageChannel();
    const got = new Promise((resolve) => port2.once('message', resolve));
    port1.postMessage('through a channel');
    console.log(await got);
    port1.close();
} else {
    worker();
}
