package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
)

var scenarios = []scenario{
	{name: "ping", run: ping},
	{name: "accept: each end opens, the other accepts", run: accept},
	{name: "send, small", run: func(s *yamux.Session) error { return inParallel(8, echoes(s, 1000, 4)) }},
	{name: "send, large", run: func(s *yamux.Session) error { return inParallel(4, echoes(s, 64, 64<<10)) }},
	{name: "many streams", run: func(s *yamux.Session) error { return inParallel(50, echoes(s, 1, 512)) }},
	{name: "many streams, ping-pong", run: func(s *yamux.Session) error { return inParallel(50, echoes(s, 100, 5)) }},
	{name: "streams one after the other", run: func(s *yamux.Session) error { return inTurn(300, echoes(s, 1, 64)) }},
	{name: "close before ack", run: closeBeforeAck},
	{name: "half-close", run: halfClose},
	{name: "half-close, then the session ends", run: halfCloseThenEnd},
	{name: "double close", run: doubleClose},
	{name: "read deadline", run: readDeadline},
	{name: "read deadline while blocked", run: blockedRead},
	{name: "write deadline", run: writeDeadline},
	{name: "deadlines of many writers", run: manyDeadlines},
	{name: "large window", configure: window(4 << 20), run: func(s *yamux.Session) error { return source(s, 8<<20, 64<<10) }},
	{name: "one write of a whole window", run: func(s *yamux.Session) error { return sink(s, 256<<10, 256<<10) }},
	{name: "partial reads, partial updates of the window", run: func(s *yamux.Session) error { return source(s, 1<<20, 1000) }},
	{name: "partial writes", run: func(s *yamux.Session) error { return sink(s, 1<<20, 777) }},
	{name: "go-away, ours", run: goAwayOurs},
	{name: "go-away, theirs", run: goAwayTheirs},
	{name: "reset, ours", run: reset},
	{name: "the session ends, ours", run: sessionEnds},
	{name: "the session ends, theirs, under traffic", run: endUnderTraffic},
	{name: "backlog", configure: func(c *yamux.Config) { c.AcceptBacklog = 4 }, run: backlog},
	{name: "keep-alive", configure: keepAlive(20 * time.Millisecond), run: keepAliveHolds},
	{name: "silence: no keep-alive of theirs", configure: func(c *yamux.Config) { c.EnableKeepAlive = false }, run: keepAliveHolds},
	{name: "stream timeouts: close is answered", configure: func(c *yamux.Config) { c.StreamCloseTimeout = 2 * time.Second }, run: closeIsAnswered},
}

func window(bytes uint32) func(*yamux.Config) {
	return func(c *yamux.Config) { c.MaxStreamWindowSize = bytes }
}

func keepAlive(interval time.Duration) func(*yamux.Config) {
	return func(c *yamux.Config) { c.KeepAliveInterval = interval }
}

func ping(session *yamux.Session) error {
	for i := 0; i < 10; i++ {
		rtt, err := session.Ping()
		if err != nil {
			return err
		}
		if rtt <= 0 {
			return fmt.Errorf("a round trip of %v", rtt)
		}
	}
	return nil
}

// echoOnce writes and reads back, as often as said, on one stream.
func echoes(session *yamux.Session, times, size int) func(int) error {
	return func(index int) error {
		stream, err := open(session, "echo")
		if err != nil {
			return err
		}
		defer stream.Close()
		sent := bytes.Repeat([]byte{byte(index)}, size)
		got := make([]byte, size)
		for i := 0; i < times; i++ {
			sent[0] = byte(i)
			wrote := newResult()
			go func() {
				_, err := stream.Write(sent)
				wrote <- err
			}()
			if _, err := io.ReadFull(stream, got); err != nil {
				return err
			}
			if err := <-wrote; err != nil {
				return err
			}
			if !bytes.Equal(sent, got) {
				return errors.New("other bytes came back")
			}
		}
		return nil
	}
}

func inParallel(count int, run func(int) error) error {
	results := make(chan error, count)
	for i := 0; i < count; i++ {
		go func(i int) { results <- run(i) }(i)
	}
	for i := 0; i < count; i++ {
		if err := <-results; err != nil {
			return err
		}
	}
	return nil
}

func inTurn(count int, run func(int) error) error {
	for i := 0; i < count; i++ {
		if err := run(i); err != nil {
			return err
		}
	}
	return nil
}

// accept lets our end open streams as well; each is answered.
func accept(session *yamux.Session) error {
	go echoAccepted(session)
	stream, err := open(session, "open 20")
	if err != nil {
		return err
	}
	return expect(stream, "20 echoed\n")
}

func echoAccepted(session *yamux.Session) {
	for {
		stream, err := session.AcceptStream()
		if err != nil {
			return
		}
		go func() {
			io.Copy(stream, stream)
			stream.Close()
		}()
	}
}

func expect(stream *yamux.Stream, text string) error {
	got, err := io.ReadAll(stream)
	if err != nil {
		return err
	}
	if string(got) != text {
		return fmt.Errorf("got %q", got)
	}
	return nil
}

func closeBeforeAck(session *yamux.Session) error {
	for i := 0; i < 20; i++ {
		stream, err := session.OpenStream()
		if err != nil {
			return err
		}
		if err := stream.Close(); err != nil {
			return err
		}
	}
	return alive(session)
}

// alive says whether the session still carries something.
func alive(session *yamux.Session) error { return echoes(session, 1, 10)(1) }

func halfClose(session *yamux.Session) error {
	stream, err := open(session, "echo")
	if err != nil {
		return err
	}
	if _, err := stream.Write([]byte("last words")); err != nil {
		return err
	}
	if err := stream.Close(); err != nil {
		return err
	}
	if _, err := stream.Write([]byte("x")); !errors.Is(err, yamux.ErrStreamClosed) {
		return fmt.Errorf("a write behind the close: %v", err)
	}
	return expect(stream, "last words")
}

func halfCloseThenEnd(session *yamux.Session) error {
	stream, err := open(session, "echo")
	if err != nil {
		return err
	}
	stream.Close()
	closing, err := open(session, "close")
	if err != nil {
		return err
	}
	io.ReadAll(closing)
	<-session.CloseChan()
	if _, err := stream.Read(make([]byte, 1)); err == nil {
		return errors.New("a stream of a session that ended gives bytes")
	}
	return nil
}

func doubleClose(session *yamux.Session) error {
	stream, err := open(session, "echo")
	if err != nil {
		return err
	}
	for i := 0; i < 3; i++ {
		if err := stream.Close(); err != nil {
			return err
		}
	}
	return alive(session)
}

func readDeadline(session *yamux.Session) error {
	stream, err := open(session, "echo")
	if err != nil {
		return err
	}
	stream.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
	if _, err := stream.Read(make([]byte, 4)); !isTimeout(err) {
		return fmt.Errorf("no timeout: %v", err)
	}
	stream.SetReadDeadline(time.Time{})
	if _, err := stream.Write([]byte("late")); err != nil {
		return err
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(stream, got); err != nil || string(got) != "late" {
		return fmt.Errorf("%q, %v", got, err)
	}
	return nil
}

func isTimeout(err error) bool {
	timeout, ok := err.(interface{ Timeout() bool })
	return ok && timeout.Timeout()
}

func blockedRead(session *yamux.Session) error {
	stream, err := open(session, "echo")
	if err != nil {
		return err
	}
	result := newResult()
	go func() {
		_, err := stream.Read(make([]byte, 4))
		result <- err
	}()
	stream.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if err := <-result; !isTimeout(err) {
		return fmt.Errorf("no timeout: %v", err)
	}
	return alive(session)
}

// writeDeadline fills the window of a stream that our end does not read, and goes on once it does.
func writeDeadline(session *yamux.Session) error {
	stream, err := open(session, "hold")
	if err != nil {
		return err
	}
	total := 0
	stream.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	for err == nil {
		var wrote int
		wrote, err = stream.Write(make([]byte, 10_000))
		total += wrote
	}
	if !isTimeout(err) {
		return fmt.Errorf("no timeout: %v", err)
	}
	if total > 256<<10 {
		return fmt.Errorf("%d bytes went into a window that nobody reads", total)
	}
	if err := alive(session); err != nil {
		return err
	}
	if _, err := open(session, "release"); err != nil {
		return err
	}
	stream.SetWriteDeadline(time.Time{})
	if _, err := stream.Write(make([]byte, 300_000)); err != nil {
		return err
	}
	stream.Close()
	got, err := io.ReadAll(stream)
	if err != nil || len(got) == 0 {
		return fmt.Errorf("%q, %v", got, err)
	}
	return nil
}

func manyDeadlines(session *yamux.Session) error {
	var group sync.WaitGroup
	errs := make(chan error, 20)
	for i := 0; i < 20; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			stream, err := open(session, "sink")
			if err != nil {
				errs <- err
				return
			}
			for n := 0; n < 50; n++ {
				stream.SetDeadline(time.Now().Add(10 * time.Second))
				if _, err := stream.Write(make([]byte, 1000)); err != nil {
					errs <- err
					return
				}
			}
			stream.Close()
			errs <- expect(stream, "50000 bytes\n")
		}()
	}
	group.Wait()
	for i := 0; i < 20; i++ {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}

func source(session *yamux.Session, size, read int) error {
	stream, err := open(session, fmt.Sprintf("source %d", size))
	if err != nil {
		return err
	}
	buffer := make([]byte, read)
	total := 0
	for {
		n, err := stream.Read(buffer)
		for i, b := range buffer[:n] {
			if b != byte((total+i)%251) {
				return fmt.Errorf("another byte at %d", total+i)
			}
		}
		total += n
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	if total != size {
		return fmt.Errorf("%d of %d bytes came", total, size)
	}
	return nil
}

func sink(session *yamux.Session, size, write int) error {
	stream, err := open(session, "sink")
	if err != nil {
		return err
	}
	for sent := 0; sent < size; {
		n := write
		if n > size-sent {
			n = size - sent
		}
		if _, err := stream.Write(make([]byte, n)); err != nil {
			return err
		}
		sent += n
	}
	stream.Close()
	return expect(stream, fmt.Sprintf("%d bytes\n", size))
}

func goAwayOurs(session *yamux.Session) error {
	going, err := open(session, "go-away")
	if err != nil {
		return err
	}
	if err := expect(going, "gone\n"); err != nil {
		return err
	}
	for i := 0; i < 100; i++ {
		if _, err = session.OpenStream(); err != nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if !errors.Is(err, yamux.ErrRemoteGoAway) {
		return fmt.Errorf("a stream behind their go-away: %v", err)
	}
	return nil
}

// goAwayTheirs: our end opens no stream any more, and what is open goes on.
func goAwayTheirs(session *yamux.Session) error {
	go echoAccepted(session)
	stream, err := open(session, "open-when-told")
	if err != nil {
		return err
	}
	if err := session.GoAway(); err != nil {
		return err
	}
	if _, err := stream.Write([]byte("now\n")); err != nil {
		return err
	}
	return expect(stream, "cannot open\n")
}

func reset(session *yamux.Session) error {
	stream, err := open(session, "reset")
	if err != nil {
		return err
	}
	if _, err := io.ReadAll(stream); !errors.Is(err, yamux.ErrConnectionReset) {
		return fmt.Errorf("no reset: %v", err)
	}
	return alive(session)
}

func sessionEnds(session *yamux.Session) error {
	held, err := open(session, "echo")
	if err != nil {
		return err
	}
	if _, err := open(session, "close"); err != nil {
		return err
	}
	<-session.CloseChan()
	if _, err := held.Read(make([]byte, 1)); err == nil {
		return errors.New("a stream outlived its session")
	}
	if _, err := session.OpenStream(); err == nil {
		return errors.New("a stream of a session that ended")
	}
	return nil
}

func endUnderTraffic(session *yamux.Session) error {
	for i := 0; i < 10; i++ {
		stream, err := open(session, "echo")
		if err != nil {
			return err
		}
		go io.Copy(io.Discard, stream)
		go stream.Write(make([]byte, 200_000))
	}
	return session.Close()
}

// backlog: nobody accepts, so that what is over it is reset at our end, and the session lives.
func backlog(session *yamux.Session) error {
	stream, err := open(session, "open-unaccepted 20")
	if err != nil {
		return err
	}
	got, err := io.ReadAll(stream)
	if err != nil {
		return err
	}
	var reset int
	if _, err := fmt.Sscanf(string(got), "%d reset", &reset); err != nil || reset == 0 {
		return fmt.Errorf("got %q", got)
	}
	return alive(session)
}

func keepAliveHolds(session *yamux.Session) error {
	time.Sleep(500 * time.Millisecond)
	return alive(session)
}

func closeIsAnswered(session *yamux.Session) error {
	for i := 0; i < 50; i++ {
		stream, err := open(session, "echo")
		if err != nil {
			return err
		}
		stream.Close()
		if _, err := io.ReadAll(stream); err != nil {
			return err
		}
	}
	for i := 0; i < 100 && session.NumStreams() > 0; i++ {
		time.Sleep(10 * time.Millisecond)
	}
	if n := session.NumStreams(); n > 0 {
		fmt.Fprintln(os.Stderr, n)
		return fmt.Errorf("%d streams are left", n)
	}
	return nil
}
