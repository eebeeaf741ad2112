// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/route"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

// maxBroken is how many conversations in a row may break in the middle before
// the destination is left alone for a while.
const maxBroken = 3

// longest is how long a run waits, with its connection, for a message's time.
const longest = 2 * time.Second

// patience is how long a conversation may last before it breaks, for the host
// to be asked a second time.
const patience = 30 * time.Second

// way is one address of one host.
type way struct {
	host  route.Host
	addr  netip.AddrPort
	clear bool // TLS was opportunistic and failed: without (RFC 7435)
}

// terms are on what a host is talked to there.
func (w *way) terms() terms {
	return terms{w.addr, w.host.Name + " " + w.host.Demand + " " + w.host.Policy}
}

// shift is one run's work.
type shift struct {
	c   *Courier
	ctx context.Context
	run *queue.Run

	via   string
	notes string // what a domain's policies have to say, for each story
	ways  []way
	at    int // the way being tried

	pending []*job // taken, and not sent
	leave   bool   // the way in use is of no more use
	broken  int    // conversations in a row that ended in the middle
	fallen  *job   // the last of too many such; all its outcomes are deferred
	buf     []byte // for reading messages

	visit   *visit
	dry     bool    // the queue has no more
	company bool    // a host refused us while it talks with other runs
	rests   *slowed // the host that takes mail again first, of those that don't now
}

// Carry sends what waits for a destination to the best host that takes it.
func (c *Courier) Carry(ctx context.Context, r *queue.Run) {
	s := &shift{c: c, ctx: ctx, run: r}
	plan, err := c.o.Router.Hosts(ctx, r.Destination())
	if err != nil {
		s.unroutable(err)
		return
	}
	s.via = plan.Via
	s.tell(plan.Notes)
	for _, h := range plan.Hosts {
		for _, a := range h.Addrs {
			s.ways = append(s.ways, way{host: h, addr: a})
		}
	}
	slices.SortStableFunc(s.ways, func(a, b way) int {
		return bit(c.hosts.avoided(a.terms())) - bit(c.hosts.avoided(b.terms()))
	})
	s.work()
}

// tell puts what policies said into the story of each delivery.
func (s *shift) tell(notes []string) {
	for _, n := range notes {
		s.notes += "* " + n + "\n"
	}
	if len(notes) > 0 {
		s.c.o.Log.Info("a destination's policies", "destination", s.run.Destination(), "notes", notes)
	}
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// unroutable reports what waits for a destination that has no way.
func (s *shift) unroutable(err error) {
	var why *route.Error
	if !errors.As(err, &why) { // ctx has ended
		return
	}
	o := queue.Outcome{State: queue.Bounced, Code: why.Code, Enhanced: why.Enhanced, Reply: why.Reason, Stage: why.Stage}
	s.tell(why.Notes)
	if !why.Permanent {
		s.c.o.Log.Info("a destination has no way", "destination", s.run.Destination(), "error", err)
		s.giveUp(o)
		return
	}
	for c := s.run.Next(); c != nil; c = s.run.Next() {
		s.run.Done(c, o)
	}
}

// work tries one way after the other until nothing waits.
func (s *shift) work() {
	var last queue.Outcome
	for s.at < len(s.ways) {
		w := &s.ways[s.at]
		err := s.try(w)
		var dial *smtpclient.DialError
		var not *slowed
		switch {
		case s.ctx.Err() != nil:
			return // the queue defers what is left
		case s.fallen != nil:
			s.giveUp(s.fallen.outcomes[0])
			return
		case errors.As(err, &not):
			if s.rests == nil || not.until.Before(s.rests.until) {
				s.rests = not
			}
			s.at++
		case errors.As(err, &dial):
			last = dialOutcome(dial, s.via)
			s.alarm(dial)
			if dial.Class == smtpclient.InClear && !w.clear {
				w.clear = true
				continue
			}
			s.at++
		case err != nil: // the pool is closed: the service is ending
			return
		case s.leave:
			s.leave = false
			last = s.pending[0].last
			s.at++
		case s.dry && len(s.pending) == 0:
			return
		}
		if s.at == len(s.ways) && s.yield(last) {
			s.at = 0
		}
	}
	if s.rests != nil {
		s.pause()
		return
	}
	s.giveUp(last)
}

// alarm tells the operator of what no waiting mends: the relay refuses the
// login, or is not who it should be.
func (s *shift) alarm(err *smtpclient.DialError) {
	if s.via == "" {
		return
	}
	switch err.Stage {
	case smtpclient.StageAuth, smtpclient.StageHandshake, smtpclient.StageStartTLS:
		s.c.o.Log.Error("the relay takes no mail from us", "host", err.Facts.Host, "stage", string(err.Stage), "reply", err.Reply.String())
	}
}

// try sends what waits to one way, unless that failed a moment ago or takes
// nothing now.
func (s *shift) try(w *way) error {
	v, err := s.c.hosts.enter(s.ctx, w.terms())
	var dial *smtpclient.DialError
	if errors.As(err, &dial) {
		s.note("* not tried again so soon; a moment ago:\n" + dial.Transcript)
	}
	if err != nil {
		return err
	}
	if !s.more() {
		v.leave(nil)
		return nil
	}
	s.visit = v
	for {
		err = s.send(w, v)
		if wait := v.wait(); err == nil && wait > 0 {
			if err = s.sleep(wait, v); err == nil {
				continue
			}
		}
		break
	}
	var down *smtpclient.DialError
	if errors.As(err, &dial) && s.ctx.Err() == nil {
		s.note(dial.Transcript)
		if dial.Class != smtpclient.InClear {
			down = dial
		}
	}
	if v.leave(down) {
		s.company = true
	}
	return err
}

// sleep waits for a message's time, if that is worth while.
func (s *shift) sleep(wait time.Duration, v *visit) error {
	if wait > longest {
		return &slowed{v.next, v.terms.addr.Addr().String() + " is sent to slowly"}
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
}

// yield is for a host that takes no more connections while it talks with other
// runs: those send what this one had, and this one tries again, for a place
// among them. It reports whether to.
func (s *shift) yield(o queue.Outcome) bool {
	if !s.company {
		return false
	}
	s.company = false
	o.State = queue.Queued
	s.pending = slices.DeleteFunc(s.pending, func(j *job) bool {
		if j.partial() {
			return false
		}
		o.Transcript = j.trail.String()
		s.run.Done(j.c, o)
		return true
	})
	return true
}

// pause tells the queue that the destination's hosts take nothing now.
func (s *shift) pause() {
	o := queue.Outcome{Code: 451, Enhanced: "4.4.5", Stage: "pace", Reply: "slowed: " + s.rests.why, Via: s.via}
	for _, j := range s.pending {
		if j.partial() {
			o := o
			o.State, o.Retry = queue.Deferred, s.rests.until.Sub(s.c.o.Now())
			j.rest(o)
			s.run.Done(j.c, j.outcomes...)
		}
	}
	s.run.Pause(s.rests.until, o)
}

// more reports whether there is anything to send.
func (s *shift) more() bool {
	if len(s.pending) > 0 {
		return true
	}
	j := s.take()
	if j != nil {
		s.pending = append(s.pending, j)
	}
	return j != nil
}

// take gets the next job from the queue.
func (s *shift) take() *job {
	c := s.run.Next()
	s.dry = c == nil
	if s.dry {
		return nil
	}
	j := newJob(c)
	j.trail.WriteString(s.notes)
	return j
}

// send sends what waits over connections to one way. An error says why no
// connection was to be had.
func (s *shift) send(w *way, v *visit) error {
	o := smtpclient.Options{
		Addr: w.addr, Host: w.host.Name, LocalName: s.c.o.LocalName, LocalIP: s.c.o.LocalIP,
		TLS: w.host.TLS, Verify: w.host.Verify, Auth: w.host.Auth, TLSConfig: w.host.TLSConfig, Policy: w.host.Policy,
		Demand: w.host.Demand, Audit: w.host.Audit, Timeouts: s.c.o.Timeouts, Now: s.c.o.Now,
	}
	o.MaxOpen = v.connections()
	if w.clear {
		o.TLS = smtpclient.Never
	}
	under := make(map[*smtpclient.Message]*job, 2)
	return s.c.o.Pool.Each(s.ctx, o, func() *smtpclient.Message {
		v.talk()
		if v.over() {
			return nil
		}
		j := s.next()
		if j == nil {
			return nil
		}
		if !v.goes() {
			s.pending = slices.Insert(s.pending, 0, j)
			return nil
		}
		m := j.message(s)
		under[m] = j
		return m
	}, func(m *smtpclient.Message, r *smtpclient.Result) {
		j := under[m]
		delete(under, m)
		j.close()
		s.report(j, r)
	})
}

// next hands out the next job while the way is of use.
func (s *shift) next() *job {
	if s.leave || s.fallen != nil {
		return nil
	}
	if len(s.pending) > 0 {
		j := s.pending[0]
		s.pending = slices.Delete(s.pending, 0, 1)
		return j
	}
	return s.take()
}

// report takes the result of one transaction.
func (s *shift) report(j *job, r *smtpclient.Result) {
	if s.ctx.Err() != nil && r.Err != nil {
		return // the queue defers what is not reported
	}
	if notDialled(r) {
		s.pending = append(s.pending, j)
		return
	}
	if r.Err != nil && untouched(r) {
		s.again(j, r)
		return
	}
	s.visit.heard(r.Outcomes)
	j.settle(r, s.via)
	s.count(r)
	switch {
	case len(j.open) > 0: // the host takes no more recipients at a time
		s.pending = append(s.pending, j)
	case s.broken >= maxBroken && s.fallen == nil && j.deferred():
		s.fallen = j
	default:
		s.run.Done(j.c, j.outcomes...)
	}
}

// notDialled reports whether a message found no connection at all.
func notDialled(r *smtpclient.Result) bool {
	o := r.Outcomes[0]
	return o.Class == smtpclient.NextHost || o.Class == smtpclient.InClear || o.Stage == smtpclient.StageConnect
}

// untouched reports whether a conversation broke before the host can have got
// the message.
func untouched(r *smtpclient.Result) bool {
	return !slices.ContainsFunc(r.Outcomes, func(o smtpclient.Outcome) bool {
		return !o.Local || o.Class != smtpclient.Temporary || o.Stage == smtpclient.StageFinal
	})
}

// again keeps a job whose conversation broke early for another connection, and
// the second time, or after a long wait, for another host.
func (s *shift) again(j *job, r *smtpclient.Result) {
	j.breaks++
	j.trail.WriteString(r.Transcript)
	j.last = outcome(r.Outcomes[0], r, s.via)
	s.pending = append([]*job{j}, s.pending...)
	s.leave = j.breaks > 1 || s.c.o.Now().Sub(j.began) >= patience
	if s.leave {
		j.breaks = 0
	}
}

// count counts the conversations in a row that break in the middle.
func (s *shift) count(r *smtpclient.Result) {
	if r.Err != nil {
		s.broken++
		return
	}
	s.broken = 0
}

// note adds a conversation that came to nothing to the story of what waits.
func (s *shift) note(transcript string) {
	for _, j := range s.pending {
		j.trail.WriteString(transcript)
	}
}

// giveUp tells the queue that the destination can't be reached. Of what a host
// has taken a part, the rest is deferred.
func (s *shift) giveUp(o queue.Outcome) {
	o.State = queue.Deferred
	first := s.fallen
	for _, j := range s.pending {
		switch {
		case j.partial():
			j.rest(o)
			s.run.Done(j.c, j.outcomes...)
		case first == nil:
			first = j
		default:
			back := o
			back.State, back.Transcript = queue.Queued, j.trail.String()
			s.run.Done(j.c, back)
		}
	}
	if first == nil {
		if first = s.take(); first == nil {
			return
		}
	}
	if first != s.fallen {
		o.Transcript = first.trail.String()
	}
	s.run.Trouble(first.c, o)
}

// dialOutcome is what a failure to connect means for a delivery.
func dialOutcome(err *smtpclient.DialError, via string) queue.Outcome {
	o := queue.Outcome{
		State: queue.Deferred, Code: err.Reply.Code, Enhanced: err.Reply.Enhanced, Reply: err.Reply.Text(),
		Stage: string(err.Stage), Via: via,
	}
	if err.Stage == smtpclient.StageConnect {
		o.Reply = err.Facts.Host + ": " + o.Reply
		return o
	}
	o.Host, o.IP, o.TLS = err.Facts.Host, err.Facts.Addr.Addr().String(), err.Facts.TLS
	return o
}
