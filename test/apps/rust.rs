// What Rust's standard library has for threads, each part checked; prints one line a part.
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Barrier, Condvar, Mutex, Once, RwLock};
use std::thread;
use std::time::{Duration, Instant};

fn threads() {
    let handles: Vec<_> = (0..500usize)
        .map(|i| {
            thread::Builder::new()
                .name(format!("worker-{i}"))
                .stack_size(64 << 10)
                .spawn(move || {
                    thread::sleep(Duration::from_millis((i % 5) as u64));
                    assert_eq!(thread::current().name(), Some(format!("worker-{i}").as_str()));
                    i * 2
                })
                .unwrap()
        })
        .collect();
    let sum: usize = handles.into_iter().map(|h| h.join().unwrap()).sum();
    println!("thread: {sum}");
    let panicked = thread::Builder::new().spawn(|| {
        std::panic::set_hook(Box::new(|_| {}));
        panic!("on purpose")
    });
    println!("panic: {}", panicked.unwrap().join().is_err());
}

fn scope() {
    let mut data = vec![1u64; 10_000];
    thread::scope(|s| {
        for part in data.chunks_mut(500) {
            s.spawn(move || {
                for x in part.iter_mut() {
                    *x += 1;
                    if *x % 100 == 0 {
                        thread::yield_now();
                    }
                }
            });
        }
    });
    println!("scope: {}", data.iter().sum::<u64>());
}

fn channels() {
    let (tx, rx) = mpsc::sync_channel::<usize>(16);
    let mut total = 0;
    thread::scope(|s| {
        for p in 0..20 {
            let tx = tx.clone();
            s.spawn(move || {
                for i in 0..500 {
                    tx.send(p * 500 + i).unwrap();
                }
            });
        }
        drop(tx);
        total = rx.iter().sum();
    });
    println!("sync_channel: {total}");
    let (tx, rx) = mpsc::channel::<Vec<u8>>();
    let before = Instant::now();
    assert!(rx.recv_timeout(Duration::from_millis(20)).is_err());
    assert!(before.elapsed() >= Duration::from_millis(20));
    let producer = thread::spawn(move || {
        for i in 0..1000 {
            tx.send(vec![i as u8; i]).unwrap();
        }
    });
    let bytes: usize = rx.iter().map(|v| v.len()).sum();
    producer.join().unwrap();
    println!("channel: {bytes}");
}

fn locks() {
    let pair = Arc::new((Mutex::new(0usize), Condvar::new()));
    let handles: Vec<_> = (0..50)
        .map(|i| {
            let pair = pair.clone();
            thread::spawn(move || {
                let (lock, cond) = &*pair;
                let mut turn = lock.lock().unwrap();
                while *turn != i {
                    turn = cond.wait(turn).unwrap();
                }
                *turn += 1;
                cond.notify_all();
            })
        })
        .collect();
    for h in handles {
        h.join().unwrap();
    }
    let (lock, cond) = &*pair;
    let (_guard, result) = cond
        .wait_timeout(lock.lock().unwrap(), Duration::from_millis(10))
        .unwrap();
    println!("condvar: {} {}", *_guard, result.timed_out());

    let map = RwLock::new(0usize);
    let barrier = Barrier::new(20);
    let leaders = AtomicUsize::new(0);
    thread::scope(|s| {
        for i in 0..20 {
            let (map, barrier, leaders) = (&map, &barrier, &leaders);
            s.spawn(move || {
                for k in 0..200 {
                    if (i + k) % 5 == 0 {
                        *map.write().unwrap() += 1;
                    } else {
                        assert!(*map.read().unwrap() <= 800);
                    }
                }
                for _ in 0..10 {
                    if barrier.wait().is_leader() {
                        leaders.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
    });
    println!("rwlock: {}; barrier: {} leaders", map.read().unwrap(), leaders.load(Ordering::SeqCst));
}

fn park() {
    let parked: Vec<_> = (0..100)
        .map(|_| {
            thread::spawn(|| {
                thread::park();
                thread::park_timeout(Duration::from_millis(1));
                1
            })
        })
        .collect();
    for h in &parked {
        h.thread().unpark();
    }
    let woken: i32 = parked.into_iter().map(|h| h.join().unwrap()).sum();
    println!("park: {woken}");
}

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
    static DROPPED: Counted = const { Counted };
}
static DROPS: AtomicUsize = AtomicUsize::new(0);
struct Counted;
impl Drop for Counted {
    fn drop(&mut self) {
        assert_eq!(COUNT.get(), 100);
        DROPS.fetch_add(1, Ordering::SeqCst);
    }
}

fn locals() {
    static ONCE: Once = Once::new();
    let calls = AtomicUsize::new(0);
    let handles: Vec<_> = (0..100)
        .map(|_| {
            thread::spawn(|| {
                DROPPED.with(|_| ());
                for _ in 0..100 {
                    COUNT.set(COUNT.get() + 1);
                    thread::yield_now();
                }
            })
        })
        .collect();
    for h in handles {
        h.join().unwrap();
    }
    thread::scope(|s| {
        for _ in 0..50 {
            s.spawn(|| {
                ONCE.call_once(|| {
                    thread::sleep(Duration::from_millis(5));
                    calls.fetch_add(1, Ordering::SeqCst);
                });
                assert!(ONCE.is_completed());
            });
        }
    });
    println!("thread_local: {} drops; once: {}", DROPS.load(Ordering::SeqCst), calls.load(Ordering::SeqCst));
}

fn main() {
    threads();
    scope();
    channels();
    locks();
    park();
    locals();
}
