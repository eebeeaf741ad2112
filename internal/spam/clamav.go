// SPDX-License-Identifier: Apache-2.0

package spam

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/summary"
)

// errTooBig is the error for a message larger than clamd accepts (StreamMaxLength).
var errTooBig = errors.New("it is larger than the scanner takes")

const (
	clamChunk    = 64 << 10
	maxClamReply = 4 << 10 // octets of a reply
	maxVirusName = 100     // octets of a name
)

// Clamav is a client of clamd that uses INSTREAM.
type Clamav struct {
	backend
	network, addr string
}

// NewClamav returns a client of the clamd at HOST:PORT, or at the path of a Unix socket. limit is
// the time limit for a message (20 s if 0).
func NewClamav(addr string, limit time.Duration) (*Clamav, error) {
	c := &Clamav{backend: newBackend(8, cmp.Or(limit, 20*time.Second)), network: "tcp", addr: addr}
	if path := strings.TrimPrefix(addr, "unix:"); strings.HasPrefix(path, "/") {
		c.network, c.addr = "unix", path
		return c, nil
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return nil, errors.New("the address of a clamd is HOST:PORT or the path of its socket")
	}
	return c, nil
}

// Scan returns the name of the virus in a message, or "".
func (c *Clamav) Scan(ctx context.Context, m *Message) (virus string, err error) {
	err = c.call(ctx, func(ctx context.Context) (ok bool, err error) {
		body, err := m.Open(ctx)
		if err != nil {
			return true, err
		}
		defer body.Close() //nolint:errcheck // only read
		virus, err = c.scan(ctx, body.All())
		return err == nil || errors.Is(err, errTooBig), err
	})
	return virus, err
}

func (c *Clamav) scan(ctx context.Context, body io.Reader) (virus string, err error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, c.network, c.addr)
	if err != nil {
		return "", err
	}
	defer nc.Close() //nolint:errcheck // done with
	defer context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })()
	// clamd may reply before it has everything, and then close the connection. Its reply matters
	// more than the write error.
	sent := writeInstream(nc, body)
	text, err := bufio.NewReader(io.LimitReader(nc, maxClamReply)).ReadBytes(0)
	if len(text) == 0 {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return "", errors.Join(sent, err)
	}
	virus, err = parseClamReply(text)
	if err == nil && virus == "" && sent != nil {
		return "", sent // a clean result is valid only for the whole message
	}
	return virus, err
}

// writeInstream writes a message in chunks: a length in four octets, big-endian, and as many
// octets. A length of zero ends the message.
func writeInstream(w io.Writer, body io.Reader) error {
	if _, err := io.WriteString(w, "zINSTREAM\x00"); err != nil {
		return err
	}
	chunk := make([]byte, 4+clamChunk)
	for {
		n, err := io.ReadFull(body, chunk[4:])
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		binary.BigEndian.PutUint32(chunk, uint32(n))
		if _, err := w.Write(chunk[:4+n]); err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
	}
}

// parseClamReply parses the reply to INSTREAM.
func parseClamReply(text []byte) (virus string, err error) {
	said := string(bytes.TrimSpace(bytes.TrimRight(text, "\x00")))
	if strings.HasSuffix(said, "size limit exceeded. ERROR") {
		return "", errTooBig
	}
	said, ok := strings.CutPrefix(said, "stream: ")
	if name, found := strings.CutSuffix(said, " FOUND"); ok && found && name != "" {
		name = strings.Map(func(r rune) rune {
			if r <= ' ' || r > '~' {
				return '_'
			}
			return r
		}, name)
		return name[:min(len(name), maxVirusName)], nil
	}
	if ok && said == "OK" {
		return "", nil
	}
	return "", fmt.Errorf("it answered %q", summary.CleanText(said, 200))
}
