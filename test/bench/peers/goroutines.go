// The benchmark programs with goroutines for threads.
package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

func peakRSS() string {
	text, _ := os.ReadFile("/proc/self/status")
	for _, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(line, "VmHWM:") {
			return strings.Fields(line)[1]
		}
	}
	return "-1"
}

func number(arg int, otherwise int) int {
	if len(os.Args) <= arg {
		return otherwise
	}
	n, err := strconv.Atoi(os.Args[arg])
	must(err)
	return n
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func report(format string, args ...interface{}) {
	fmt.Fprintf(os.Stderr, format+" peak_rss_kb=%s\n", append(args, peakRSS())...)
}

// sleepers N DELAY_MS [-q]
func sleepers() {
	n, delay, quiet := number(2, 0), number(3, 0), len(os.Args) > 4
	var lock sync.Mutex
	var all sync.WaitGroup
	out := bufio.NewWriter(os.Stdout)
	all.Add(n)
	start := time.Now()
	for i := 0; i < n; i++ {
		go func() {
			time.Sleep(time.Duration(delay) * time.Millisecond)
			if !quiet {
				lock.Lock()
				out.WriteByte('.')
				lock.Unlock()
			}
			all.Done()
		}()
	}
	created := time.Since(start).Seconds()
	all.Wait()
	t := time.Since(start).Seconds()
	out.Flush()
	report("sleepers n=%d delay_ms=%d seconds=%.4f create_s=%.4f ops_s=%.0f", n, delay, t, created, float64(n)/t)
}

// createjoin M [BATCH]
func createJoin() {
	m, batch := number(2, 0), number(3, 1)
	done := make(chan bool, batch)
	start := time.Now()
	for left := m; left > 0; left -= batch {
		for i := 0; i < batch; i++ {
			go func() { done <- true }()
		}
		for i := 0; i < batch; i++ {
			<-done
		}
	}
	t := time.Since(start).Seconds()
	report("createjoin m=%d batch=%d seconds=%.4f ops_s=%.0f us_each=%.3f", m, batch, t, float64(m)/t, t*1e6/float64(m))
}

// pingpong cond|pipe|yield|chan M
func pingPong() {
	way, m := os.Args[2], number(3, 0)
	var lock sync.Mutex
	wake := [2]*sync.Cond{sync.NewCond(&lock), sync.NewCond(&lock)}
	chans := [2]chan bool{make(chan bool), make(chan bool)}
	var readers, writers [2]*os.File
	for i := range readers {
		var err error
		readers[i], writers[i], err = os.Pipe()
		must(err)
	}
	turn, token := 0, int32(0)
	player := func(me int) {
		buf := []byte{0}
		for i := 0; i < m; i++ {
			switch way {
			case "cond":
				lock.Lock()
				for turn != me {
					wake[me].Wait()
				}
				turn = 1 - me
				wake[1-me].Signal()
				lock.Unlock()
			case "pipe":
				if me == 1 {
					readers[0].Read(buf)
				}
				writers[me].Write(buf)
				if me == 0 {
					readers[1].Read(buf)
				}
			case "chan":
				if me == 1 {
					<-chans[0]
				}
				chans[me] <- true
				if me == 0 {
					<-chans[1]
				}
			default:
				for atomic.LoadInt32(&token) != int32(me) {
					runtime.Gosched()
				}
				atomic.StoreInt32(&token, int32(1-me))
			}
		}
	}
	var both sync.WaitGroup
	both.Add(2)
	start := time.Now()
	for me := 0; me < 2; me++ {
		go func(me int) {
			player(me)
			both.Done()
		}(me)
	}
	both.Wait()
	t := time.Since(start).Seconds()
	report("pingpong by=%s m=%d seconds=%.4f ops_s=%.0f ns_round=%.1f", way, m, t, float64(m)/t, t*1e9/float64(m))
}

// mutexbench T M
func mutexBench() {
	threads, m := number(2, 0), number(3, 0)
	var lock sync.Mutex
	var all sync.WaitGroup
	gate := make(chan bool)
	counter := 0
	all.Add(threads)
	for i := 0; i < threads; i++ {
		go func() {
			<-gate
			for i := 0; i < m; i++ {
				lock.Lock()
				counter++
				lock.Unlock()
			}
			all.Done()
		}()
	}
	start := time.Now()
	close(gate)
	all.Wait()
	t := time.Since(start).Seconds()
	report("mutexbench threads=%d m=%d seconds=%.4f ops_s=%.0f ns_op=%.1f", threads, m, t, float64(counter)/t, t*1e9/float64(counter))
}

// echo PORT [DELAY_MS]: a goroutine for each connection
func echo() {
	delay := time.Duration(number(3, 0)) * time.Millisecond
	listener, err := net.Listen("tcp4", "127.0.0.1:"+os.Args[2])
	must(err)
	for {
		conn, err := listener.Accept()
		must(err)
		go func() {
			defer conn.Close()
			buf := make([]byte, 4096)
			for {
				n, err := conn.Read(buf)
				if err != nil {
					return
				}
				if delay > 0 {
					time.Sleep(delay)
				}
				if _, err = conn.Write(buf[:n]); err != nil {
					return
				}
			}
		}()
	}
}

func main() {
	if len(os.Args) < 3 {
		must(fmt.Errorf("usage: goroutines sleepers|createjoin|pingpong|mutexbench|echo ARGS"))
	}
	map[string]func(){"sleepers": sleepers, "createjoin": createJoin, "pingpong": pingPong,
		"mutexbench": mutexBench, "echo": echo}[os.Args[1]]()
}
