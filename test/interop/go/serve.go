package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"net/url"
	"strconv"
)

// answer serves one exchange; the path says how.
func answer(q request, body *content, w response) {
	target, err := url.Parse(q.path)
	if err != nil {
		w.head(400)
		w.end()
		return
	}
	switch target.Path {
	case "/echo":
		// Each chunk goes back as it comes, before the request has ended.
		w.head(200, field{"content-type", "application/octet-stream"})
		if _, err := io.Copy(w, onlyReader{body}); err != nil {
			return
		}
		w.end(append([]field{{"x-end", "echo"}}, body.trailers...)...)
	case "/upload":
		sum := sha256.New()
		n, err := io.Copy(sum, onlyReader{body})
		if err != nil {
			return
		}
		reply(w, 200, fmt.Sprintf("%d %x", n, sum.Sum(nil)))
	case "/download":
		download(w, target.Query().Get("bytes"))
	case "/early":
		// The whole answer and FIN first; then what still comes is discarded until the sender stops.
		reply(w, 413, "no")
		io.Copy(io.Discard, onlyReader{body})
	case "/head":
		text := fmt.Sprintln(q.method, q.scheme, q.authority, q.path)
		for _, f := range q.fields {
			text += f.name + ": " + f.value + "\n"
		}
		reply(w, 200, text)
	default:
		io.Copy(io.Discard, onlyReader{body})
		reply(w, 404, "not found")
	}
}

// onlyReader hides everything but Read, so that io.Copy takes its own buffer.
type onlyReader struct{ io.Reader }

func reply(w response, status uint64, text string) {
	w.head(status, field{"content-type", "text/plain"}, field{"content-length", strconv.Itoa(len(text))})
	io.WriteString(w, text)
	w.end()
}

func download(w response, bytes string) {
	left, _ := strconv.Atoi(bytes)
	w.head(200, field{"content-length", strconv.Itoa(left)})
	chunk := make([]byte, 100_000)
	for i := range chunk {
		chunk[i] = byte(i % 251)
	}
	for left > 0 {
		if left < len(chunk) {
			chunk = chunk[:left]
		}
		if _, err := w.Write(chunk); err != nil {
			return
		}
		left -= len(chunk)
	}
	w.end()
}

// upgrade answers the 101 and echoes WebSocket frames; /no is told no.
func upgrade(q request, r *bufio.Reader, stream io.WriteCloser) {
	defer stream.Close()
	if q.path == "/no" {
		reply(response{stream}, 403, "no")
		return
	}
	stream.Write(appendFields(appendVarint([]byte{1}, 101), nil))
	for {
		opcode, payload, err := readFrame(r)
		if err != nil {
			return
		}
		if err := writeFrame(stream, opcode, payload); err != nil || opcode&0xf == 8 {
			return
		}
	}
}

// readFrame reads one masked frame of RFC 6455 section 5.2; opcode has its FIN bit.
func readFrame(r *bufio.Reader) (byte, []byte, error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	length := uint64(head[1] & 0x7f)
	if size := map[uint64]int{126: 2, 127: 8}[length]; size > 0 {
		long := make([]byte, 8)
		if _, err := io.ReadFull(r, long[8-size:]); err != nil {
			return 0, nil, err
		}
		length = binary.BigEndian.Uint64(long)
	}
	frame := make([]byte, 4+length)
	if _, err := io.ReadFull(r, frame); err != nil {
		return 0, nil, err
	}
	for i := range frame[4:] {
		frame[4+i] ^= frame[i%4]
	}
	return head[0], frame[4:], nil
}

func writeFrame(w io.Writer, opcode byte, payload []byte) error {
	frame := []byte{opcode}
	switch length := len(payload); {
	case length < 126:
		frame = append(frame, byte(length))
	case length < 1<<16:
		frame = binary.BigEndian.AppendUint16(append(frame, 126), uint16(length))
	default:
		frame = binary.BigEndian.AppendUint64(append(frame, 127), uint64(length))
	}
	_, err := w.Write(append(frame, payload...))
	return err
}
