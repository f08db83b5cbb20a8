// Drives our session with hashicorp/yamux at the other end, in both roles, through what its own session tests go through.
//
//	hashicorp-yamux ADDRESS
//
// Each connection begins with a line, "server" or "client": what our end is. Then both speak yamux.
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
)

// A bound of the harness, far beyond what any of it takes.
const patience = 20 * time.Second

type scenario struct {
	name string
	// Changes to the default configuration.
	configure func(*yamux.Config)
	run       func(*yamux.Session) error
}

func main() {
	address := os.Args[1]
	failed := false
	for _, ours := range []string{"server", "client"} {
		for _, one := range scenarios {
			if len(os.Args) > 2 && !strings.Contains(one.name, os.Args[2]) {
				continue
			}
			if err := try(address, ours, one); err != nil {
				failed = true
				fmt.Printf("FAIL %s, ours is the %s: %v\n", one.name, ours, err)
				continue
			}
			fmt.Printf("ok %s, ours is the %s\n", one.name, ours)
		}
	}
	if failed {
		os.Exit(1)
	}
}

func try(address, ours string, one scenario) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	fmt.Fprintf(conn, "%s\n", ours)
	config := yamux.DefaultConfig()
	config.LogOutput = io.Discard
	if one.configure != nil {
		one.configure(config)
	}
	make := yamux.Client
	if ours == "client" {
		make = yamux.Server
	}
	session, err := make(conn, config)
	if err != nil {
		return err
	}
	defer session.Close()
	done := newResult()
	go func() { done <- one.run(session) }()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		return fmt.Errorf("did not end")
	}
}

func newResult() chan error { return make(chan error, 1) }

// Goroutines that open at once send their ids in any order, and our end takes rising ids alone (security statement M6).
// Nothing that meets it in service opens streams: the tunnel's client accepts.
var opening sync.Mutex

// open opens a stream whose first line tells our end what to do with it.
func open(session *yamux.Session, command string) (*yamux.Stream, error) {
	opening.Lock()
	stream, err := session.OpenStream()
	opening.Unlock()
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(stream, "%s\n", command)
	return stream, err
}
