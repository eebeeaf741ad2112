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

// maxBrokenTransactions is how many transactions in a row may break in the middle before the
// destination is deferred as a whole.
const maxBrokenTransactions = 3

// maxSendWait is how long a session waits for a message's send time while it keeps its connection.
const maxSendWait = 2 * time.Second

// sameHostRetryWindow is how long a transaction may last before its connection breaks, if the same
// host is to be tried once more.
const sameHostRetryWindow = 30 * time.Second

// target is one address of one host.
type target struct {
	host      route.Host
	addr      netip.AddrPort
	plaintext bool // use no TLS, since opportunistic TLS failed (RFC 7435)
}

// key returns the address and the policy that its host must satisfy.
func (w *target) key() hostKey {
	return hostKey{w.addr, w.host.Name + " " + w.host.TLSRequiredBy + " " + w.host.PolicyKey}
}

// requiresTLS reports whether the host rejects mail without TLS (RFC 3207 §4). TLS had just failed
// with it, and may yet succeed.
func (w *target) requiresTLS(r *smtpclient.Result) bool {
	return w.plaintext && r.Outcomes[0].Stage == smtpclient.StageMail && r.Outcomes[0].Reply.Code == 530
}

// deliverySession is the state of one queue session.
type deliverySession struct {
	agent        *Agent
	ctx          context.Context
	queueSession *queue.Session

	via         string
	policyNotes string // notes on the domain's policies, for each transcript
	targets     []target
	targetIndex int // index of the target being tried

	pending     []*job // jobs fetched but not finished
	skipTarget  bool   // whether to go on to the next target
	brokenCount int    // number of transactions in a row that broke in the middle
	failedJob   *job   // job of the last of too many broken ones; all its outcomes are deferred
	buf         []byte // buffer for reading messages

	requirements *requirements // requirements of the only job; nil: jobs without any
	separate     []*job        // jobs to send by themselves, after all others
	hasTLSPolicy bool          // whether the destination has a TLS policy

	slot        *hostSlot
	exhausted   bool            // whether the queue has no more jobs
	busyRefusal bool            // whether a host refused us while it serves other sessions
	rateLimit   *rateLimitError // earliest end of a limit among the limited targets
}

// Deliver sends the mail that waits for a destination to the best host that accepts it.
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

// sendByPlan sends the pending mail to the hosts of a plan.
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

// addPolicyNotes adds policy notes to the transcript of each delivery.
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

// tryTargets tries one target after the other until nothing is pending.
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
		case err != nil: // the pool is closed: the service is stopping
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

// logRelayFailure logs smart host failures that a retry can't fix: it rejects the login or
// STARTTLS, or its certificate is wrong.
func (s *deliverySession) logRelayFailure(err *smtpclient.DialError) {
	if s.via == "" {
		return
	}
	switch err.Stage {
	case smtpclient.StageAuth, smtpclient.StageHandshake, smtpclient.StageStartTLS:
		s.agent.opts.Log.Error("the relay takes no mail from us", "host", err.Peer.Host, "stage", string(err.Stage), "reply", err.Reply.String())
	}
}

// tryTarget sends the pending mail to one target, unless that failed a moment ago or accepts
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

// waitToSend waits for a message's send time, up to maxSendWait.
func (s *deliverySession) waitToSend(wait time.Duration, v *hostSlot) error {
	if wait > maxSendWait {
		return &rateLimitError{v.nextSend, v.key.addr.Addr().String() + " is sent to slowly"}
	}
	if notify.Sleep(s.ctx, wait) != nil {
		return context.Cause(s.ctx)
	}
	return nil
}

// ensurePending reports whether there is anything to send; it fetches a job if none is pending.
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

// fetchJob fetches the next job from the queue. It returns nil if there is none.
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

// send sends the pending mail over connections to one target. An error says why no connection could
// be opened.
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

// nextJob returns the next job to send to the current target, or nil.
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

// requeue returns a job to the queue, untried, because another node may have taken it over.
func (s *deliverySession) requeue(j *job) {
	j.setRemaining(queue.Outcome{State: queue.Queued})
	s.queueSession.Finish(j.tx, j.outcomes...)
}

// handleResult handles the result of one SMTP transaction.
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
	if elsewhere && s.requirements == nil { // other messages still go to this host
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
	case len(j.pendingRcpts) > 0: // the host accepts no more recipients at a time
		s.pending = append(s.pending, j)
	case s.brokenCount >= maxBrokenTransactions && s.failedJob == nil && j.isDeferred():
		s.failedJob = j
	default:
		s.queueSession.Finish(j.tx, j.outcomes...)
	}
}

// notConnected reports whether no connection was opened for a message.
func notConnected(r *smtpclient.Result) bool {
	o := r.Outcomes[0]
	return o.Class == smtpclient.NextHost || o.Class == smtpclient.RetryPlaintext || o.Stage == smtpclient.StageConnect
}

// brokeEarly reports whether the connection broke before the host can have received the message.
func brokeEarly(r *smtpclient.Result) bool {
	return !slices.ContainsFunc(r.Outcomes, func(o smtpclient.Outcome) bool {
		return !o.Local || o.Class != smtpclient.Temporary || o.Stage == smtpclient.StageFinal
	})
}

// retryJob keeps a job whose connection broke early for another connection. The second time, or
// after a transaction that lasted long, it goes to another target.
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

// countBroken counts the transactions in a row that break in the middle. If we abort one because
// its message can't be read, that says nothing about the host.
func (s *deliverySession) countBroken(r *smtpclient.Result) {
	switch {
	case r.Err == nil:
		s.brokenCount = 0
	case !errors.Is(r.Err, smtpclient.ErrReadBody):
		s.brokenCount++
	}
}

// addTranscript adds the transcript of a failed connection to all pending jobs.
func (s *deliverySession) addTranscript(transcript string) {
	for _, j := range s.pending {
		j.transcript.WriteString(transcript)
	}
}

// dialOutcome converts a failed connection into a delivery's outcome.
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
