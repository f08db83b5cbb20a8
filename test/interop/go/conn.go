package main

import (
	"context"
	"errors"
	"io"

	"github.com/coder/websocket"
)

// The largest binary message that either end takes.
const maxMessage = 128 << 10

// conn is the byte stream that the binary messages of a WebSocket make up; text messages go to onText.
type conn struct {
	ws      *websocket.Conn
	onText  func([]byte)
	current io.Reader
}

func (c *conn) Read(p []byte) (int, error) {
	for {
		if c.current == nil {
			kind, reader, err := c.ws.Reader(context.Background())
			if err != nil {
				return 0, err
			}
			if kind == websocket.MessageText {
				text, err := io.ReadAll(reader)
				if err != nil {
					return 0, err
				}
				c.onText(text)
				continue
			}
			c.current = reader
		}
		n, err := c.current.Read(p)
		if errors.Is(err, io.EOF) {
			c.current, err = nil, nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

func (c *conn) Write(p []byte) (int, error) {
	sent := 0
	for sent < len(p) {
		end := sent + maxMessage
		if end > len(p) {
			end = len(p)
		}
		if err := c.ws.Write(context.Background(), websocket.MessageBinary, p[sent:end]); err != nil {
			return sent, err
		}
		sent = end
	}
	return sent, nil
}

func (c *conn) Close() error { return c.ws.Close(websocket.StatusNormalClosure, "") }
