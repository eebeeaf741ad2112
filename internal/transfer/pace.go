// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"io"
	"net/http"
	"time"
)

// A stream may take as long as it wants to, but not stand still: within stall
// it has to bring least bytes.
const (
	stall = time.Minute
	least = 16 << 10
)

// Arriving reads a request's body of any length. A peer that stands still gets
// os.ErrDeadlineExceeded; what the service itself does between two Reads does
// not count.
type Arriving struct {
	body  io.Reader
	c     *http.ResponseController
	stall time.Duration
	left  time.Duration
	got   int
}

// Arrive makes a reader of r's body.
func Arrive(w http.ResponseWriter, r *http.Request) *Arriving {
	return &Arriving{body: r.Body, c: http.NewResponseController(w), stall: stall, left: stall}
}

// Read is that of io.Reader.
func (a *Arriving) Read(p []byte) (int, error) {
	begun := time.Now()
	_ = a.c.SetReadDeadline(begun.Add(a.left)) // the server has a bound of its own, too
	n, err := a.body.Read(p)
	a.left -= time.Since(begun) // what the caller does between two Reads is its own affair
	if a.got += n; a.got >= least {
		a.got, a.left = 0, a.stall
	}
	return n, err
}

// Stop ends a Read that waits, and all later ones.
func (a *Arriving) Stop() { _ = a.c.SetReadDeadline(time.Unix(1, 0)) }

// End gives the answer time to be written. whole says that all of the body was
// read; otherwise what comes of it gets no more time.
func (a *Arriving) End(whole bool) {
	_ = a.c.SetWriteDeadline(time.Now().Add(stall))
	if whole {
		_ = a.c.SetReadDeadline(time.Time{})
	}
}

// Leaving writes an answer of any length. Begin is called before its first
// byte, or by End if there is none.
type Leaving struct {
	Begin func()
	Begun bool

	w http.ResponseWriter
	c *http.ResponseController
}

// Leave makes a writer of w.
func Leave(w http.ResponseWriter, begin func()) *Leaving {
	return &Leaving{Begin: begin, w: w, c: http.NewResponseController(w)}
}

// Write is that of io.Writer. A client that reads nothing for a minute is given
// up.
func (l *Leaving) Write(p []byte) (int, error) {
	_ = l.c.SetWriteDeadline(time.Now().Add(stall)) // the server has a bound of its own, too
	l.begin()
	return l.w.Write(p)
}

func (l *Leaving) begin() {
	if !l.Begun {
		l.Begun = true
		l.Begin()
	}
}

// End ends an answer that is whole.
func (l *Leaving) End() {
	_ = l.c.SetWriteDeadline(time.Now().Add(stall))
	l.begin()
}
