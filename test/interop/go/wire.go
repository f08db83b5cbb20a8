package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// QUIC variable-length integers.

func readVarint(r *bufio.Reader) (uint64, error) {
	first, err := r.ReadByte()
	if err != nil {
		return 0, err
	}
	value := uint64(first & 0x3f)
	for i := 1; i < 1<<(first>>6); i++ {
		next, err := r.ReadByte()
		if err != nil {
			return 0, io.ErrUnexpectedEOF
		}
		value = value<<8 | uint64(next)
	}
	return value, nil
}

func appendVarint(b []byte, v uint64) []byte {
	switch {
	case v < 1<<6:
		return append(b, byte(v))
	case v < 1<<14:
		return binary.BigEndian.AppendUint16(b, uint16(v)|1<<14)
	case v < 1<<30:
		return binary.BigEndian.AppendUint32(b, uint32(v)|1<<31)
	default:
		return binary.BigEndian.AppendUint64(b, v|3<<62)
	}
}

func readString(r *bufio.Reader, limit uint64) (string, error) {
	length, err := readVarint(r)
	if err != nil {
		return "", err
	}
	if length > limit {
		return "", errors.New("too long")
	}
	text := make([]byte, length)
	_, err = io.ReadFull(r, text)
	return string(text), err
}

func appendString(b []byte, s string) []byte {
	return append(appendVarint(b, uint64(len(s))), s...)
}

// The preamble of a stream.

type preamble struct {
	kind    uint64
	entries map[uint64]string
}

// Whoever knows these serves a stream; an unknown odd type must be refused.
var known = map[uint64]bool{1: true, 3: true, 5: true, 7: true, 9: true, 0xb: true, 0xd: true, 0xf: true, 0x11: true}

var errUnsupported = errors.New("unsupported")

func readPreamble(r *bufio.Reader) (preamble, error) {
	p := preamble{entries: map[uint64]string{}}
	var err error
	if p.kind, err = readVarint(r); err != nil {
		return p, err
	}
	body, err := readVarint(r)
	if err != nil || body > 1024 {
		return p, fmt.Errorf("preamble of %d bytes: %w", body, err)
	}
	entries := bufio.NewReader(io.LimitReader(r, int64(body)))
	for {
		kind, err := readVarint(entries)
		if err == io.EOF {
			return p, nil
		}
		if err != nil {
			return p, err
		}
		value, err := readString(entries, body)
		if err != nil {
			return p, err
		}
		if kind%2 == 1 && !known[kind] {
			return p, errUnsupported
		}
		p.entries[kind] = value
	}
}

// Binary HTTP, indeterminate-length form.

type field struct{ name, value string }

type request struct {
	method, scheme, authority, path string
	fields                          []field
}

func readFields(r *bufio.Reader) ([]field, error) {
	var fields []field
	for {
		name, err := readString(r, 32<<10)
		if err != nil || name == "" {
			return fields, err
		}
		value, err := readString(r, 32<<10)
		if err != nil || len(fields) == 128 {
			return nil, errors.New("malformed fields")
		}
		fields = append(fields, field{name, value})
	}
}

func readRequest(r *bufio.Reader) (request, error) {
	var q request
	framing, err := readVarint(r)
	if err != nil || framing != 2 {
		return q, fmt.Errorf("framing indicator %d: %w", framing, err)
	}
	for _, part := range []*string{&q.method, &q.scheme, &q.authority, &q.path} {
		if *part, err = readString(r, 32<<10); err != nil {
			return q, err
		}
	}
	q.fields, err = readFields(r)
	return q, err
}

// content reads the chunks of a message; io.EOF comes after its trailers and the end of the stream, nothing else.
type content struct {
	r        *bufio.Reader
	left     uint64
	ended    bool
	trailers []field
}

func (c *content) Read(p []byte) (int, error) {
	if c.ended {
		return 0, io.EOF
	}
	if c.left == 0 {
		length, err := readVarint(c.r)
		if err != nil {
			return 0, io.ErrUnexpectedEOF
		}
		if c.left = length; length == 0 {
			return 0, c.finish()
		}
	}
	if uint64(len(p)) > c.left {
		p = p[:c.left]
	}
	n, err := c.r.Read(p)
	c.left -= uint64(n)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (c *content) finish() (err error) {
	if c.trailers, err = readFields(c.r); err != nil {
		return io.ErrUnexpectedEOF
	}
	if _, err = c.r.ReadByte(); err != io.EOF {
		return errors.New("bytes behind the message")
	}
	c.ended = true
	return io.EOF
}

func appendFields(b []byte, fields []field) []byte {
	for _, f := range fields {
		b = appendString(appendString(b, f.name), f.value)
	}
	return append(b, 0)
}

// response writes the answering direction.
type response struct{ w io.WriteCloser }

func (a response) head(status uint64, fields ...field) {
	a.w.Write(appendFields(appendVarint([]byte{1, 3}, status), fields))
}

func (a response) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if _, err := a.w.Write(append(appendVarint(nil, uint64(len(p))), p...)); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (a response) end(trailers ...field) {
	a.w.Write(appendFields([]byte{0}, trailers))
	a.w.Close()
}
