// SPDX-License-Identifier: Apache-2.0

// Package relay is the SMTP delivery agent: it sends the queue's mail to other hosts. A session
// tries the hosts that package route names, in order, until one accepts a connection. It sends the
// destination's pending mail over pooled connections, which later sessions reuse.
//
// The package reports a recipient as delivered only after a host's 250 reply to the message. It
// sends nothing to a second host that the first may have accepted.
package relay

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/route"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

// Options configure an Agent.
type Options struct {
	Router *route.Router
	// Pool bounds the connections to one host and the messages on each. Its creator closes it,
	// after the queue has stopped.
	Pool      *smtpclient.Pool
	LocalName string     // host name for EHLO
	LocalIP   netip.Addr // address to connect from; invalid: the system's choice
	Timeouts  smtpclient.Timeouts
	Now       func() time.Time
	Log       *slog.Logger

	MaxConnsPerDestination int // simultaneous connections for one destination; 0: 10
	DeliveriesPerConn      int // waiting deliveries for each further connection; 0: 32

	// MaxConnsPerHost and MaxRatePerHost are the limits for one address, shared by all its
	// destinations: simultaneous connections (0: 10) and messages per second (0: no limit).
	// Complaints from a host lower its limits for a while.
	MaxConnsPerHost int
	MaxRatePerHost  float64
	// MaxWaitersPerHost is how many sessions wait at one address while they keep their slot in the
	// queue; 0: 64. Further sessions release it while they wait.
	MaxWaitersPerHost int
}

// Agent sends mail by SMTP. It is a queue.Agent for any destination.
type Agent struct {
	opts  Options
	hosts *hostTable
}

// New returns an Agent.
func New(o Options) *Agent {
	if o.MaxConnsPerDestination <= 0 {
		o.MaxConnsPerDestination = 10
	}
	if o.DeliveriesPerConn <= 0 {
		o.DeliveriesPerConn = 32
	}
	if o.MaxConnsPerHost <= 0 {
		o.MaxConnsPerHost = 10
	}
	if o.MaxWaitersPerHost <= 0 {
		o.MaxWaitersPerHost = defaultMaxWaiters
	}
	return &Agent{opts: o, hosts: newHostTable(o.Now, o.MaxConnsPerHost, o.MaxRatePerHost, o.MaxWaitersPerHost)}
}

var _ queue.Agent = (*Agent)(nil)

// ForgetFailures forgets which hosts were down, so that an operator can have them tried at once.
// Limits that hosts asked for stay.
func (a *Agent) ForgetFailures() {
	a.hosts.mu.Lock()
	defer a.hosts.mu.Unlock()
	clear(a.hosts.failures)
}

// Concurrency returns one, plus one for each Options.DeliveriesPerConn waiting deliveries, at most
// Options.MaxConnsPerDestination. With fewer deliveries, opening a connection takes longer than
// sending them over the existing ones.
func (a *Agent) Concurrency(waiting int) int {
	return min(1+waiting/a.opts.DeliveriesPerConn, a.opts.MaxConnsPerDestination)
}
