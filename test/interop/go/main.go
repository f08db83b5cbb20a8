// A tunnel client in another language, made from protocol/SPEC.md alone. It proves that document, and that a yamux
// library of somebody else is a good peer.
package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/coder/websocket"
	"github.com/hashicorp/yamux"
)

type message map[string]any

// client is one session.
type client struct {
	conn    *conn
	runtime string
	streams sync.WaitGroup
	drained chan struct{}
}

func main() {
	url := flag.String("url", "", "wss://host:port")
	ca := flag.String("ca", "", "file of the certificate authority")
	token := flag.String("token", "", "file of the token")
	flag.Parse()
	if err := run(*url, *ca, *token); err != nil {
		log.Fatal(err)
	}
}

func run(url, ca, token string) error {
	c, err := dial(url, ca, token)
	if err != nil {
		return err
	}
	if err := c.greet(); err != nil {
		return err
	}
	config := yamux.DefaultConfig()
	config.LogOutput = io.Discard
	session, err := yamux.Client(c.conn, config)
	if err != nil {
		return err
	}
	if _, err := session.Ping(); err != nil {
		return err
	}
	c.send(message{"type": "ready"})
	go c.leaveOnSignal()
	for {
		stream, err := session.AcceptStream()
		if err != nil {
			return nil
		}
		c.streams.Add(1)
		go func() {
			defer c.streams.Done()
			c.serve(stream)
		}()
	}
}

func dial(url, ca, token string) (*client, error) {
	bearer, err := os.ReadFile(token)
	if err != nil {
		return nil, err
	}
	header := http.Header{"Authorization": {"Bearer " + string(bearer)}}
	options := &websocket.DialOptions{Subprotocols: []string{"sallyport.v1"}, HTTPHeader: header}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, err
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(pem)
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}}
		options.HTTPClient = &http.Client{Transport: transport}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, url+"/tunnel/v1/connect", options)
	if err != nil {
		return nil, err
	}
	ws.SetReadLimit(maxMessage)
	c := &client{drained: make(chan struct{})}
	c.conn = &conn{ws: ws, onText: c.control}
	return c, nil
}

// newInstance returns the id of this run. A process id would not do: in a container, each run has the same.
func newInstance() string {
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		panic(err)
	}
	return hex.EncodeToString(id)
}

// greet says hello and waits for welcome; no yamux frame goes before.
func (c *client) greet() error {
	c.send(message{
		"type": "hello", "minor": 0, "software": "sallyport-interop-go/1", "instance": newInstance(),
		"startedMs": time.Now().UnixMilli(), "lastEpoch": 0, "connection": 0,
	})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, text, err := c.conn.ws.Read(ctx)
	if err != nil {
		return err
	}
	var welcome struct{ Type, Runtime string }
	if err := json.Unmarshal(text, &welcome); err != nil || welcome.Type != "welcome" {
		return fmt.Errorf("no welcome: %s", text)
	}
	c.runtime = welcome.Runtime
	return nil
}

func (c *client) send(m message) {
	text, _ := json.Marshal(m)
	if err := c.conn.ws.Write(context.Background(), websocket.MessageText, text); err != nil {
		log.Print(err)
	}
}

// control takes the messages behind welcome. What it does not know it ignores.
func (c *client) control(text []byte) {
	var m struct {
		Type   string
		Epoch  uint64
		Active bool
	}
	if json.Unmarshal(text, &m) != nil {
		return
	}
	switch m.Type {
	case "ready":
		fmt.Printf("ready epoch=%d active=%t\n", m.Epoch, m.Active)
	case "drain":
		// We open no streams, so there is nothing to stop. A real client opens its next session before it says this.
		c.send(message{"type": "drained", "lastStream": 0})
	case "drained":
		close(c.drained)
	case "bye":
		fmt.Println("bye")
	}
}

// leaveOnSignal drains: the server opens no more streams, those that are open are served, then bye.
func (c *client) leaveOnSignal() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	<-signals
	c.send(message{"type": "drain", "reason": "SIGTERM", "afterMs": 0, "deadlineMs": 5000})
	select {
	case <-c.drained:
		c.streams.Wait()
	case <-time.After(5 * time.Second):
	}
	c.send(message{"type": "bye", "reason": "SIGTERM"})
	c.conn.Close()
}

func (c *client) serve(stream *yamux.Stream) {
	r := bufio.NewReaderSize(stream, 64<<10)
	p, err := readPreamble(r)
	if err != nil || p.kind > 2 {
		c.refuse(stream, 2)
		return
	}
	if p.entries[5] != c.runtime {
		c.refuse(stream, 3)
		return
	}
	q, err := readRequest(r)
	if err != nil {
		c.refuse(stream, 1)
		return
	}
	if p.kind == 2 {
		upgrade(q, r, stream)
		return
	}
	answer(q, &content{r: r}, response{stream})
}

func (c *client) refuse(stream *yamux.Stream, code byte) {
	stream.Write([]byte{2, code})
	stream.Close()
}
