// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/route"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

// maxBrokenTransactions is how many conversations in a row may break in the middle before
// the destination is left alone for a while.
const maxBrokenTransactions = 3

// maxSendWait is how long a run waits, with its connection, for a message's time.
const maxSendWait = 2 * time.Second

// sameHostRetryWindow is how long a conversation may last before it breaks, for the host
// to be asked a second time.
const sameHostRetryWindow = 30 * time.Second

// target is one address of one host.
type target struct {
	host      route.Host
	addr      netip.AddrPort
	plaintext bool // TLS was opportunistic and failed: without (RFC 7435)
}

// key are on what a host is talked to there.
func (w *target) key() hostKey {
	return hostKey{w.addr, w.host.Name + " " + w.host.TLSRequiredBy + " " + w.host.PolicyKey}
}

// requiresTLS reports whether a host takes nothing without TLS (RFC 3207 §4), which
// had just failed there, and may yet succeed.
func (w *target) requiresTLS(r *smtpclient.Result) bool {
	return w.plaintext && r.Outcomes[0].Stage == smtpclient.StageMail && r.Outcomes[0].Reply.Code == 530
}

// deliverySession is one run's work.
type deliverySession struct {
	agent        *Agent
	ctx          context.Context
	queueSession *queue.Session

	via         string
	policyNotes string // what a domain's policies have to say, for each story
	targets     []target
	targetIndex int // the way being tried

	pending     []*job // taken, and not sent
	skipTarget  bool   // the way in use is of no more use
	brokenCount int    // conversations in a row that ended in the middle
	failedJob   *job   // the last of too many such; all its outcomes are deferred
	buf         []byte // for reading messages

	requirements *requirements // of the only job, if it can't go with others
	separate     []*job        // those that can't, to be sent last
	hasTLSPolicy bool          // the destination has a policy of its own

	slot        *hostSlot
	exhausted   bool            // the queue has no more
	busyRefusal bool            // a host refused us while it talks with other runs
	rateLimit   *rateLimitError // the host that takes mail again first, of those that don't now
}

// Deliver sends what waits for a destination to the best host that takes it.
func (c *Agent) Deliver(ctx context.Context, r *queue.Session) {
	s := &deliverySession{agent: c, ctx: ctx, queueSession: r}
	plan, err := c.opts.Router.Hosts(ctx, r.Destination())
	if err != nil {
		s.handleRouteError(err)
	} else {
		s.hasTLSPolicy = hasTLSPolicy(plan)
		s.sendByPlan(plan)
	}
	s.sendSeparate()
}

// sendByPlan sends what waits by a plan.
func (s *deliverySession) sendByPlan(plan route.Plan) {
	s.via = plan.Via
	s.addPolicyNotes(plan.Notes)
	for _, h := range plan.Hosts {
		if note := "* TLS is demanded: " + h.TLSRequiredBy + "\n"; h.TLSRequiredBy != "" && !strings.Contains(s.policyNotes, note) {
			s.policyNotes += note
		}
	}
	if s.requirements != nil {
		s.requirements.job.transcript.WriteString(s.policyNotes)
	}
	for _, h := range plan.Hosts {
		for _, a := range h.Addrs {
			s.targets = append(s.targets, target{host: h, addr: a})
		}
	}
	slices.SortStableFunc(s.targets, func(a, b target) int {
		return boolToInt(s.agent.hosts.recentlyFailed(a.key())) - boolToInt(s.agent.hosts.recentlyFailed(b.key()))
	})
	s.tryTargets()
}

// addPolicyNotes puts what policies said into the story of each delivery.
func (s *deliverySession) addPolicyNotes(notes []string) {
	for _, n := range notes {
		s.policyNotes += "* " + n + "\n"
	}
	if len(notes) > 0 {
		s.agent.opts.Log.Info("a destination's policies", "destination", s.queueSession.Destination(), "notes", notes)
	}
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// tryTargets tries one way after the other until nothing waits.
func (s *deliverySession) tryTargets() {
	var last queue.Outcome
	for s.targetIndex < len(s.targets) {
		w := &s.targets[s.targetIndex]
		err := s.tryTarget(w)
		var dial *smtpclient.DialError
		var not *rateLimitError
		switch {
		case s.ctx.Err() != nil:
			s.deferPartial()
			return
		case s.failedJob != nil:
			s.failDestination(s.failedJob.outcomes[0])
			return
		case errors.As(err, &not):
			if s.rateLimit == nil || not.retryAt.Before(s.rateLimit.retryAt) {
				s.rateLimit = not
			}
			s.targetIndex++
		case errors.As(err, &dial):
			last = dialOutcome(dial, s.via)
			s.logRelayFailure(dial)
			s.requirements.recordDialFailure(dial, last)
			if dial.Class == smtpclient.RetryPlaintext && !w.plaintext {
				w.plaintext = true
				s.agent.hosts.recordTLSFailure(w.key())
				continue
			}
			s.targetIndex++
		case err != nil: // the pool is closed: the service is ending
			return
		case s.skipTarget:
			s.skipTarget = false
			last = s.pending[0].lastOutcome
			s.targetIndex++
		case s.exhausted && len(s.pending) == 0:
			return
		}
		if s.targetIndex == len(s.targets) && s.requeuePending(last) {
			s.targetIndex = 0
		}
	}
	if s.rateLimit != nil {
		s.pauseDestination()
		return
	}
	s.failDestination(last)
}

// logRelayFailure tells the operator of what no waiting mends: the relay refuses the
// login, or is not who it should be.
func (s *deliverySession) logRelayFailure(err *smtpclient.DialError) {
	if s.via == "" {
		return
	}
	switch err.Stage {
	case smtpclient.StageAuth, smtpclient.StageHandshake, smtpclient.StageStartTLS:
		s.agent.opts.Log.Error("the relay takes no mail from us", "host", err.Peer.Host, "stage", string(err.Stage), "reply", err.Reply.String())
	}
}

// tryTarget sends what waits to one way, unless that failed a moment ago or takes
// nothing now.
func (s *deliverySession) tryTarget(w *target) error {
	v, err := s.agent.hosts.acquire(s.ctx, w.key(), s.queueSession.ReleaseSlot)
	var dial *smtpclient.DialError
	if errors.As(err, &dial) {
		s.addTranscript("* not tried again so soon; a moment ago:\n" + dial.Transcript)
	}
	if err != nil {
		return err
	}
	if !s.ensurePending() {
		v.release(nil)
		return nil
	}
	s.slot = v
	for {
		err = s.send(w, v)
		if wait := v.sendDelay(); err == nil && wait > 0 {
			if err = s.waitToSend(wait, v); err == nil {
				continue
			}
		}
		break
	}
	var down *smtpclient.DialError
	if errors.As(err, &dial) && s.ctx.Err() == nil {
		s.addTranscript(dial.Transcript)
		if dial.Class != smtpclient.RetryPlaintext {
			down = dial
		}
	}
	if v.release(down) {
		s.busyRefusal = true
	}
	return err
}

// waitToSend waits for a message's time, if that is worth while.
func (s *deliverySession) waitToSend(wait time.Duration, v *hostSlot) error {
	if wait > maxSendWait {
		return &rateLimitError{v.nextSend, v.key.addr.Addr().String() + " is sent to slowly"}
	}
	if notify.Sleep(s.ctx, wait) != nil {
		return context.Cause(s.ctx)
	}
	return nil
}

// ensurePending reports whether there is anything to send.
func (s *deliverySession) ensurePending() bool {
	if len(s.pending) > 0 {
		return true
	}
	j := s.fetchJob()
	if j != nil {
		s.pending = append(s.pending, j)
	}
	return j != nil
}

// fetchJob gets the next job from the queue.
func (s *deliverySession) fetchJob() *job {
	for s.requirements == nil {
		c := s.queueSession.Next()
		if c == nil {
			break
		}
		j := newJob(c)
		if s.needsSeparate(j) {
			s.separate = append(s.separate, j)
			continue
		}
		j.transcript.WriteString(s.policyNotes)
		return j
	}
	s.exhausted = true
	return nil
}

// send sends what waits over connections to one way. An error says why no
// connection was to be had.
func (s *deliverySession) send(w *target, v *hostSlot) error {
	o := smtpclient.Options{
		Addr: w.addr, Host: w.host.Name, LocalName: s.agent.opts.LocalName, LocalIP: s.agent.opts.LocalIP,
		TLS: w.host.TLS, Verify: w.host.Verify, Auth: w.host.Auth, TLSConfig: w.host.TLSConfig, PolicyKey: w.host.PolicyKey,
		TLSRequiredBy: w.host.TLSRequiredBy, TestingPolicy: w.host.TestingPolicy, Timeouts: s.agent.opts.Timeouts, Now: s.agent.opts.Now,
	}
	o.MaxConns = v.maxConnections()
	s.choosePlaintext(w)
	if w.plaintext {
		o.TLS, o.PlaintextReason = smtpclient.Never, "in clear, as STARTTLS failed with this host a short time ago"
	}
	under := make(map[*smtpclient.Message]*job, 2)
	return s.agent.opts.Pool.SendAll(s.ctx, o, func() *smtpclient.Message {
		v.markConnected()
		if v.mustRelease() {
			return nil
		}
		j := s.nextJob()
		if j == nil {
			return nil
		}
		if !v.reserveSend() {
			s.pending = slices.Insert(s.pending, 0, j)
			return nil
		}
		m := j.newMessage(s)
		under[m] = j
		return m
	}, func(m *smtpclient.Message, r *smtpclient.Result) {
		j := under[m]
		delete(under, m)
		j.close()
		s.handleResult(j, r)
	})
}

// nextJob hands out the next job while the way is of use.
func (s *deliverySession) nextJob() *job {
	if s.skipTarget || s.failedJob != nil {
		return nil
	}
	for len(s.pending) > 0 {
		j := s.pending[0]
		s.pending = slices.Delete(s.pending, 0, 1)
		if s.queueSession.Owns(j.tx) {
			return j
		}
		s.requeue(j)
	}
	return s.fetchJob()
}

// requeue ends a job that another node may have taken over, as untried.
func (s *deliverySession) requeue(j *job) {
	j.setRemaining(queue.Outcome{State: queue.Queued})
	s.queueSession.Finish(j.tx, j.outcomes...)
}

// handleResult takes the result of one transaction.
func (s *deliverySession) handleResult(j *job, r *smtpclient.Result) {
	if s.ctx.Err() != nil && r.Err != nil {
		s.pending = append(s.pending, j)
		return
	}
	if errors.Is(r.Err, errLeaseLost) {
		s.requeue(j)
		return
	}
	if notConnected(r) {
		s.pending = append(s.pending, j)
		return
	}
	if r.RcptsBeforeHangup > 0 {
		s.slot.recordHangup(r.RcptsBeforeHangup)
	}
	if r.Err != nil && brokeEarly(r) {
		s.retryJob(j, r)
		return
	}
	if j.lacks8BitMIME(r) && s.reencode(j, r) {
		return
	}
	elsewhere := len(s.targets) > 1 && !j.isPartial() && hostIncapable(r)
	if elsewhere && s.requirements == nil { // the others stay with this host
		s.separate = append(s.separate, j)
		return
	}
	if elsewhere || s.requirements.lacksRequireTLS(r) || s.targets[s.targetIndex].requiresTLS(r) {
		j.transcript.WriteString(r.Transcript)
		j.lastOutcome = queueOutcome(r.Outcomes[0], r, s.via)
		s.requirements.recordRejection(j.lastOutcome, elsewhere)
		if s.targets[s.targetIndex].requiresTLS(r) {
			s.agent.hosts.clearTLSFailure(s.targets[s.targetIndex].key())
		}
		s.pending, s.skipTarget = append(s.pending, j), true
		return
	}
	s.slot.recordReplies(r.Outcomes)
	j.recordResult(r, s.via)
	s.countBroken(r)
	switch {
	case len(j.pendingRcpts) > 0: // the host takes no more recipients at a time
		s.pending = append(s.pending, j)
	case s.brokenCount >= maxBrokenTransactions && s.failedJob == nil && j.isDeferred():
		s.failedJob = j
	default:
		s.queueSession.Finish(j.tx, j.outcomes...)
	}
}

// notConnected reports whether a message found no connection at all.
func notConnected(r *smtpclient.Result) bool {
	o := r.Outcomes[0]
	return o.Class == smtpclient.NextHost || o.Class == smtpclient.RetryPlaintext || o.Stage == smtpclient.StageConnect
}

// brokeEarly reports whether a conversation broke before the host can have got
// the message.
func brokeEarly(r *smtpclient.Result) bool {
	return !slices.ContainsFunc(r.Outcomes, func(o smtpclient.Outcome) bool {
		return !o.Local || o.Class != smtpclient.Temporary || o.Stage == smtpclient.StageFinal
	})
}

// retryJob keeps a job whose conversation broke early for another connection, and
// the second time, or after a long wait, for another host.
func (s *deliverySession) retryJob(j *job, r *smtpclient.Result) {
	j.breakCount++
	j.transcript.WriteString(r.Transcript)
	j.lastOutcome = queueOutcome(r.Outcomes[0], r, s.via)
	s.pending = append([]*job{j}, s.pending...)
	s.skipTarget = j.breakCount > 1 || s.agent.opts.Now().Sub(j.startedAt) >= sameHostRetryWindow
	if s.skipTarget {
		j.breakCount = 0
		s.requirements.recordBreak()
	}
}

// countBroken counts the conversations in a row that break in the middle. One that we
// break off, as a message of ours can't be read, says nothing of the host.
func (s *deliverySession) countBroken(r *smtpclient.Result) {
	switch {
	case r.Err == nil:
		s.brokenCount = 0
	case !errors.Is(r.Err, smtpclient.ErrReadBody):
		s.brokenCount++
	}
}

// addTranscript adds a conversation that came to nothing to the story of what waits.
func (s *deliverySession) addTranscript(transcript string) {
	for _, j := range s.pending {
		j.transcript.WriteString(transcript)
	}
}

// dialOutcome is what a failure to connect means for a delivery.
func dialOutcome(err *smtpclient.DialError, via string) queue.Outcome {
	o := queue.Outcome{
		State: queue.Deferred, Code: err.Reply.Code, Enhanced: err.Reply.Enhanced, Reply: err.Reply.Text(),
		Stage: string(err.Stage), Via: via,
	}
	if err.Stage == smtpclient.StageConnect {
		o.Reply = err.Peer.Host + ": " + o.Reply
		return o
	}
	o.Host, o.IP, o.TLS = err.Peer.Host, err.Peer.Addr.Addr().String(), err.Peer.TLS
	return o
}
