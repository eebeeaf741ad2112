// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/route"
	"github.com/mailstead/mailstead/internal/signal"
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

// insists reports whether a host takes nothing without TLS (RFC 3207 §4), which
// had just failed there, and may yet succeed.
func (w *way) insists(r *smtpclient.Result) bool {
	return w.clear && r.Outcomes[0].Stage == smtpclient.StageMail && r.Outcomes[0].Reply.Code == 530
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

	needs     *needs // of the only job, if it can't go with others
	aside     []*job // those that can't, to be sent last
	demanding bool   // the destination has a policy of its own

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
	} else {
		s.demanding = demanding(plan)
		s.follow(plan)
	}
	s.sendAside()
}

// follow sends what waits by a plan.
func (s *shift) follow(plan route.Plan) {
	s.via = plan.Via
	s.tell(plan.Notes)
	for _, h := range plan.Hosts {
		if note := "* TLS is demanded: " + h.Demand + "\n"; h.Demand != "" && !strings.Contains(s.notes, note) {
			s.notes += note
		}
	}
	if s.needs != nil {
		s.needs.j.trail.WriteString(s.notes)
	}
	for _, h := range plan.Hosts {
		for _, a := range h.Addrs {
			s.ways = append(s.ways, way{host: h, addr: a})
		}
	}
	slices.SortStableFunc(s.ways, func(a, b way) int {
		return bit(s.c.hosts.avoided(a.terms())) - bit(s.c.hosts.avoided(b.terms()))
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
			s.breakOff()
			return
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
			s.needs.failed(dial, last)
			if dial.Class == smtpclient.InClear && !w.clear {
				w.clear = true
				s.c.hosts.startTLSFailed(w.terms())
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
	v, err := s.c.hosts.enter(s.ctx, w.terms(), s.run.Aside)
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
	if signal.Sleep(s.ctx, wait) != nil {
		return context.Cause(s.ctx)
	}
	return nil
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
	for s.needs == nil {
		c := s.run.Next()
		if c == nil {
			break
		}
		j := newJob(c)
		if s.special(j) {
			s.aside = append(s.aside, j)
			continue
		}
		j.trail.WriteString(s.notes)
		return j
	}
	s.dry = true
	return nil
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
	s.choose(w)
	if w.clear {
		o.TLS, o.Clear = smtpclient.Never, "in clear, as STARTTLS failed with this host a short time ago"
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
	for len(s.pending) > 0 {
		j := s.pending[0]
		s.pending = slices.Delete(s.pending, 0, 1)
		if s.run.Ours(j.c) {
			return j
		}
		s.giveBack(j)
	}
	return s.take()
}

// giveBack ends a job that another node may have taken over, as untried.
func (s *shift) giveBack(j *job) {
	j.rest(queue.Outcome{State: queue.Queued})
	s.run.Done(j.c, j.outcomes...)
}

// report takes the result of one transaction.
func (s *shift) report(j *job, r *smtpclient.Result) {
	if s.ctx.Err() != nil && r.Err != nil {
		s.pending = append(s.pending, j)
		return
	}
	if errors.Is(r.Err, errTaken) {
		s.giveBack(j)
		return
	}
	if notDialled(r) {
		s.pending = append(s.pending, j)
		return
	}
	if r.Took > 0 {
		s.visit.hungUp(r.Took)
	}
	if r.Err != nil && untouched(r) {
		s.again(j, r)
		return
	}
	if j.lacks8Bit(r) && s.encode(j, r) {
		return
	}
	elsewhere := len(s.ways) > 1 && !j.partial() && unfit(r)
	if elsewhere && s.needs == nil { // the others stay with this host
		s.aside = append(s.aside, j)
		return
	}
	if elsewhere || s.needs.unwilling(r) || s.ways[s.at].insists(r) {
		j.trail.WriteString(r.Transcript)
		j.last = outcome(r.Outcomes[0], r, s.via)
		s.needs.refused(j.last, elsewhere)
		if s.ways[s.at].insists(r) {
			s.c.hosts.tryTLS(s.ways[s.at].terms())
		}
		s.pending, s.leave = append(s.pending, j), true
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
		s.needs.broke()
	}
}

// count counts the conversations in a row that break in the middle. One that we
// break off, as a message of ours can't be read, says nothing of the host.
func (s *shift) count(r *smtpclient.Result) {
	switch {
	case r.Err == nil:
		s.broken = 0
	case !errors.Is(r.Err, smtpclient.ErrBody):
		s.broken++
	}
}

// note adds a conversation that came to nothing to the story of what waits.
func (s *shift) note(transcript string) {
	for _, j := range s.pending {
		j.trail.WriteString(transcript)
	}
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
