// SPDX-License-Identifier: Apache-2.0

// Package relay carries mail to other hosts: it is the queue's courier for all
// that is not delivered here. A run takes the hosts that route names one after
// the other until one has a conversation for it, and sends what waits for the
// destination over connections that later runs use again.
//
// It promises that a recipient is reported as delivered only after a host's
// 250 to the message, and that nothing goes to a second host which the first
// may have taken.
package relay

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/route"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

// Options are what a Agent works with.
type Options struct {
	Router *route.Router
	// Pool bounds connections to one host and the messages over each. Whoever
	// made it closes it, after the queue has ended.
	Pool      *smtpclient.Pool
	LocalName string     // our name for EHLO
	LocalIP   netip.Addr // address to connect from; invalid: the system's choice
	Timeouts  smtpclient.Timeouts
	Now       func() time.Time
	Log       *slog.Logger

	MaxConnsPerDestination int // connections for one destination at a time; 0: 10
	DeliveriesPerConn      int // deliveries that wait for each further connection; 0: 32

	// MaxConnsPerHost and Rate are the fastest that mail goes to one address, whatever
	// its destinations: connections at a time (0: 10) and messages per second
	// (0: no limit). A host that complains gets it more slowly for a while.
	MaxConnsPerHost int
	MaxRatePerHost  float64
	// MaxWaitersPerHost is how many runs of the queue wait for a place at one address; 0:
	// 64. Further ones wait as none.
	MaxWaitersPerHost int
}

// Agent carries mail over SMTP. It is a queue.Agent for any destination.
type Agent struct {
	opts  Options
	hosts *hostTable
}

// New returns a courier.
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

// ForgetFailures forgets which hosts were down: somebody who knows more wants them
// tried. What hosts asked for, such as to slow down, is still kept to.
func (c *Agent) ForgetFailures() {
	c.hosts.mu.Lock()
	defer c.hosts.mu.Unlock()
	clear(c.hosts.failures)
}

// Concurrency is one, and one more for each Options.DeliveriesPerConn deliveries that wait: with
// fewer, opening a connection takes longer than sending them over the ones
// that there are.
func (c *Agent) Concurrency(waiting int) int {
	return min(1+waiting/c.opts.DeliveriesPerConn, c.opts.MaxConnsPerDestination)
}
