// hashicorp's yamux alone, for the scenario "mux": both ends in this process, over memory, with the same two loads as
// workers/mux.ts. Arguments: exchanges or bulk, then milliseconds. Prints one line of JSON.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/yamux"
)

const (
	concurrency = 64
	headBytes   = 300
	answerBytes = 1024
	chunkBytes  = 64 << 10
)

type result struct {
	Count      float64 `json:"count"`
	DurationMs float64 `json:"durationMs"`
	CPUUs      float64 `json:"cpuUs"`
	Wrong      int64   `json:"wrong"`
}

var loads = map[string]func(time.Duration) (float64, int64){"exchanges": exchanges, "bulk": bulk}

func main() {
	ms, err := strconv.Atoi(os.Args[2])
	if err != nil {
		panic(err)
	}
	before, startedAt := cpu(), time.Now()
	count, wrong := loads[os.Args[1]](time.Duration(ms) * time.Millisecond)
	line, _ := json.Marshal(result{
		Count: count, Wrong: wrong,
		DurationMs: time.Since(startedAt).Seconds() * 1000,
		CPUUs:      float64((cpu() - before).Microseconds()) / count,
	})
	fmt.Println(string(line))
}

func cpu() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// pair returns a session that opens streams. Its other end accepts them and hands each to serve.
func pair(serve func(net.Conn)) *yamux.Session {
	left, right := net.Pipe()
	config := yamux.DefaultConfig()
	config.EnableKeepAlive = false
	config.LogOutput = io.Discard
	server, err := yamux.Server(right, config)
	if err != nil {
		panic(err)
	}
	client, err := yamux.Client(left, config)
	if err != nil {
		panic(err)
	}
	go func() {
		for {
			stream, err := server.Accept()
			if err != nil {
				return
			}
			go serve(stream)
		}
	}()
	return client
}

func exchanges(duration time.Duration) (float64, int64) {
	answer := make([]byte, answerBytes)
	session := pair(func(stream net.Conn) {
		io.Copy(io.Discard, stream)
		stream.Write(answer)
		stream.Close()
	})
	defer session.Close()
	head := make([]byte, headBytes)
	until := time.Now().Add(duration)
	var count, wrong atomic.Int64
	var all sync.WaitGroup
	for range concurrency {
		all.Add(1)
		go func() {
			defer all.Done()
			for time.Now().Before(until) {
				stream, err := session.Open()
				if err != nil {
					wrong.Add(1)
					return
				}
				stream.Write(head)
				stream.Close()
				n, _ := io.Copy(io.Discard, stream)
				if n != answerBytes {
					wrong.Add(1)
				}
				count.Add(1)
			}
		}()
	}
	all.Wait()
	return float64(count.Load()), wrong.Load()
}

func bulk(duration time.Duration) (float64, int64) {
	taken := make(chan int64)
	session := pair(func(stream net.Conn) {
		n, _ := io.Copy(io.Discard, stream)
		taken <- n
	})
	defer session.Close()
	stream, err := session.Open()
	if err != nil {
		panic(err)
	}
	chunk := make([]byte, chunkBytes)
	until := time.Now().Add(duration)
	var sent int64
	for time.Now().Before(until) {
		n, err := stream.Write(chunk)
		sent += int64(n)
		if err != nil {
			panic(err)
		}
	}
	stream.Close()
	got := <-taken
	if got != sent {
		return float64(got) / 1e6, 1
	}
	return float64(got) / 1e6, 0
}
