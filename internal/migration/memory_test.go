// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/heaptest"
)

// stranger is a connection to a source that sends arbitrary data.
type stranger struct {
	net.Conn
	io.Reader
}

func (s stranger) Read(p []byte) (int, error)      { return s.Reader.Read(p) }
func (s stranger) SetDeadline(time.Time) error     { return nil }
func (s stranger) SetReadDeadline(time.Time) error { return nil }

// Memory for a source's responses is bounded, for every kind of response.
func TestMemoryOfAnswers(t *testing.T) {
	answers := func(r io.Reader) any {
		l := &sourceConn{Conn: stranger{Reader: r}, idleTimeout: time.Hour, hideRev2: true}
		l.beginCommand(2 * heaptest.Size)
		_, err := io.Copy(io.Discard, l)
		if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, errTooMuchData) {
			t.Error(err)
		}
		return l
	}
	heaptest.Check(t, answers,
		heaptest.Input{Head: "", Unit: "x"},
		heaptest.Input{Head: "* 1 FETCH (BODY[] {67108864}\r\n", Unit: "\r"},
		heaptest.Input{Head: "* 1 FETCH (FLAGS (", Unit: "x "},
		heaptest.Input{Head: "", Unit: "* 1 FETCH (FLAGS ([x] \"y\") INTERNALDATE \"\")\r\n"},
		heaptest.Input{Head: "", Unit: "* NAMESPACE ((((((((((((((((((((((((((((((\r\n"},
		heaptest.Input{Head: "* 1 FETCH (BODY[] {1}\r\nx", Unit: " BODY[] {1}\r\nx"},
		heaptest.Input{Head: "* LIST () \"/\" {262144}\r\n", Unit: "x"},
		heaptest.Input{Head: "* LIST () \"/\" (", Unit: "{1}\r\nx"},
		heaptest.Input{Head: "* SEARCH", Unit: " 4294967295"},
		heaptest.Input{Head: "* SEARCH 1 (MODSEQ", Unit: " 1"},
		heaptest.Input{Head: "", Unit: "* LIST () \"/\" \"&\"\r\n"})
	// These are the same number of UIDs.
	heaptest.CheckLimit(t, 3*8*maxRanges, answers, heaptest.Input{Head: "* SEARCH", Unit: " 1 9"})
}
