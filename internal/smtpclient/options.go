// SPDX-License-Identifier: Apache-2.0

// Package smtpclient holds SMTP conversations with other hosts (RFC 5321):
// one Conn is one connection to one host, and Pool keeps connections for the
// next messages. It knows nothing of MX records, queues or policies; it says
// of each recipient what the host answered, at which command, and what that
// means for the delivery.
//
// It promises three things: a recipient is Delivered only after a 2xx to the
// final dot; a message whose bytes could not be read to the end is never
// finished with a dot; and nothing that comes from the other side costs more
// than bounded memory and bounded time.
package smtpclient

import (
	"crypto/tls"
	"net/netip"
	"time"
)

// TLSMode says how a connection is protected.
type TLSMode int

// The modes. Opportunistic is the zero value, as SEMANTICS of ordinary mail
// between servers want it (RFC 7435).
const (
	Opportunistic TLSMode = iota // STARTTLS when it is offered, clear otherwise
	Required                     // STARTTLS must be offered and succeed (RFC 3207)
	Implicit                     // TLS from the first byte (RFC 8314)
	Never                        // clear, also when STARTTLS is offered
)

// Auth is a login at a smart host (RFC 4954). It is sent over TLS, or in
// clear to a loopback address only.
type Auth struct {
	User     string
	Password string
}

// Timeouts are the longest waits of one conversation. A zero field means the
// value of RFC 5321 section 4.5.3.2 given beside it, or our own where the RFC
// has none.
type Timeouts struct {
	Connect     time.Duration // TCP connection; 30 s, ours
	Greeting    time.Duration // 220; 5 min
	Command     time.Duration // EHLO, STARTTLS, AUTH, MAIL, RCPT, RSET; 5 min each
	Handshake   time.Duration // TLS; 1 min, ours
	DataInit    time.Duration // 354; 2 min
	DataBlock   time.Duration // each block of the message; 3 min
	Final       time.Duration // reply to the final dot; 10 min
	Transaction time.Duration // one message from MAIL to the last reply; 2 h, ours
	Quit        time.Duration // reply to QUIT; 5 s, ours: nothing depends on it
}

// Options say where to connect and how. Two Options with the same values may
// share connections in a Pool.
type Options struct {
	Addr netip.AddrPort // where to connect
	// MaxConns is how many connections there may be to Addr now, whatever host
	// and policy they are for; 0, and what is above PoolLimits.MaxPerHost,
	// means that.
	MaxConns  int
	Host      string     // the host's name: TLS server name, name to verify, transcript
	LocalName string     // our name for EHLO, a domain name or an address literal
	LocalIP   netip.Addr // address to connect from; invalid: the system's choice

	TLS TLSMode
	// Verify checks the certificate against Host and the roots. Without it
	// any certificate is taken (RFC 7435), unless TLSConfig has its own
	// VerifyConnection, for DANE.
	Verify bool
	// TLSConfig is the base for our configuration; nil is fine. Whoever sets
	// it also sets Policy.
	TLSConfig *tls.Config
	// PolicyKey tells apart Options whose TLSConfig differ, for Pool.
	PolicyKey string
	// TLSRequiredBy names who demands TLS, such as "DANE"; refusals say so. Audit
	// names who would like it: a certificate is then checked against Host and
	// the roots of TLSConfig, and what comes of that, or the lack of TLS, goes
	// into the transcript; Policy must tell it apart.
	TLSRequiredBy, TestingPolicy string
	// PlaintextReason says in the transcript why STARTTLS is not used where it is offered,
	// with Never.
	PlaintextReason string

	Auth     *Auth
	Timeouts Timeouts
	// Now is the clock of transcripts; nil means time.Now. Deadlines follow
	// the system's clock.
	Now func() time.Time
}

func durationOr(d, fallback time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return fallback
}

func (t Timeouts) withDefaults() Timeouts {
	return Timeouts{
		Connect:     durationOr(t.Connect, 30*time.Second),
		Greeting:    durationOr(t.Greeting, 5*time.Minute),
		Command:     durationOr(t.Command, 5*time.Minute),
		Handshake:   durationOr(t.Handshake, time.Minute),
		DataInit:    durationOr(t.DataInit, 2*time.Minute),
		DataBlock:   durationOr(t.DataBlock, 3*time.Minute),
		Final:       durationOr(t.Final, 10*time.Minute),
		Transaction: durationOr(t.Transaction, 2*time.Hour),
		Quit:        durationOr(t.Quit, 5*time.Second),
	}
}
