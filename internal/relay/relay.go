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

// Options are what a Courier works with.
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

	Limit  int // connections for one destination at a time; 0: 10
	PerRun int // deliveries that wait for each further connection; 0: 32

	// PerHost and Rate are the fastest that mail goes to one address, whatever
	// its destinations: connections at a time (0: 10) and messages per second
	// (0: no limit). A host that complains gets it more slowly for a while.
	PerHost int
	Rate    float64
	// Waiters is how many runs of the queue wait for a place at one address; 0:
	// 64. Further ones wait as none.
	Waiters int
}

// Courier carries mail over SMTP. It is a queue.Courier for any destination.
type Courier struct {
	o     Options
	hosts *hosts
}

// New returns a courier.
func New(o Options) *Courier {
	if o.Limit <= 0 {
		o.Limit = 10
	}
	if o.PerRun <= 0 {
		o.PerRun = 32
	}
	if o.PerHost <= 0 {
		o.PerHost = 10
	}
	if o.Waiters <= 0 {
		o.Waiters = maxWaiters
	}
	return &Courier{o: o, hosts: newHosts(o.Now, o.PerHost, o.Rate, o.Waiters)}
}

var _ queue.Courier = (*Courier)(nil)

// DialAgain forgets which hosts were down: somebody who knows more wants them
// tried. What hosts asked for, such as to slow down, is still kept to.
func (c *Courier) DialAgain() {
	c.hosts.mu.Lock()
	defer c.hosts.mu.Unlock()
	clear(c.hosts.failed)
}

// Runs is one, and one more for each Options.PerRun deliveries that wait: with
// fewer, opening a connection takes longer than sending them over the ones
// that there are.
func (c *Courier) Runs(waiting int) int {
	return min(1+waiting/c.o.PerRun, c.o.Limit)
}
