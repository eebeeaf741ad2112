// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"net/netip"
	"slices"
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

// nextAction is what a session does after an exchange.
type nextAction int

const (
	tryAgain          nextAction = iota // go on with the same target
	tryNext                             // go on with the next target
	destinationFailed                   // report that the destination is unreachable
	stop                                // nothing is left to do
)

// exchangeResult is the result of an exchange.
type exchangeResult struct {
	action  nextAction
	outcome queue.Outcome   // why the target or the destination failed
	limit   *rateLimitError // tryNext: the target accepts nothing yet
	busy    bool            // tryNext: the host refused us while it serves other sessions
	failed  *job            // destinationFailed: the job with the last broken transaction
}

// exchange is what a session does with one target, from acquiring a slot to releasing it.
type exchange struct {
	*deliverySession
	target *target
	slot   *hostSlot
	next   exchangeResult // set by a result; no further job is sent once its action isn't tryAgain
}

// exchange sends the pending mail to one target, unless that failed a moment ago or accepts nothing
// now.
func (s *deliverySession) exchange(t *target) exchangeResult {
	x := &exchange{deliverySession: s, target: t}
	busy, err := x.run()
	var dial *smtpclient.DialError
	var limit *rateLimitError
	switch {
	case s.ctx.Err() != nil:
		s.deferPartial()
		return exchangeResult{action: stop}
	case x.next.action == destinationFailed:
		return x.next
	case errors.As(err, &limit):
		return exchangeResult{action: tryNext, limit: limit}
	case errors.As(err, &dial):
		o := dialOutcome(dial, s.via)
		s.logRelayFailure(dial)
		s.requirements.recordDialFailure(dial, o)
		if dial.Class == smtpclient.RetryPlaintext && !t.plaintext {
			t.plaintext = true
			s.agent.hosts.recordTLSFailure(t.key())
			return x.next
		}
		return exchangeResult{action: tryNext, outcome: o, busy: busy}
	case err != nil, s.exhausted && len(s.pending) == 0: // an error: the pool is closed, as the service is stopping
		return exchangeResult{action: stop}
	}
	return x.next
}

// run sends mail while the target's slot allows it. busy reports whether the host refused us while
// it serves other sessions.
func (x *exchange) run() (busy bool, err error) {
	x.slot, err = x.agent.hosts.acquire(x.ctx, x.target.key(), x.queueSession.ReleaseSlot)
	var dial *smtpclient.DialError
	if errors.As(err, &dial) {
		x.addTranscript("* not tried again so soon; a moment ago:\n" + dial.Transcript)
	}
	if err != nil {
		return false, err
	}
	if !x.ensurePending() {
		x.slot.release(nil)
		return false, nil
	}
	for {
		err = x.send()
		wait := x.slot.sendDelay()
		if err != nil || wait <= 0 {
			break
		}
		if err = x.waitToSend(wait); err != nil {
			break
		}
	}
	var down *smtpclient.DialError
	if errors.As(err, &dial) && x.ctx.Err() == nil {
		x.addTranscript(dial.Transcript)
		if dial.Class != smtpclient.RetryPlaintext {
			down = dial
		}
	}
	return x.slot.release(down), err
}

// waitToSend waits for a message's send time, up to maxSendWait.
func (x *exchange) waitToSend(wait time.Duration) error {
	if wait > maxSendWait {
		return &rateLimitError{x.slot.nextSend, x.slot.key.addr.Addr().String() + " is sent to slowly"}
	}
	if notify.Sleep(x.ctx, wait) != nil {
		return context.Cause(x.ctx)
	}
	return nil
}

// send sends the pending mail over connections to one target. An error says why no connection could
// be opened.
func (x *exchange) send() error {
	o := smtpclient.Options{
		Addr: x.target.addr, Host: x.target.host.Name, LocalName: x.agent.opts.LocalName, LocalIP: x.agent.opts.LocalIP,
		TLS: x.target.host.TLS, Verify: x.target.host.Verify, Auth: x.target.host.Auth, TLSConfig: x.target.host.TLSConfig, PolicyKey: x.target.host.PolicyKey,
		TLSRequiredBy: x.target.host.TLSRequiredBy, TestingPolicy: x.target.host.TestingPolicy, Timeouts: x.agent.opts.Timeouts, Now: x.agent.opts.Now,
	}
	o.MaxConns = x.slot.maxConnections()
	x.choosePlaintext()
	if x.target.plaintext {
		o.TLS, o.PlaintextReason = smtpclient.TLSNever, "in clear, as STARTTLS failed with this host a short time ago"
	}
	under := make(map[*smtpclient.Message]*job, 2)
	return x.agent.opts.Pool.SendAll(x.ctx, o, func() *smtpclient.Message {
		x.slot.markConnected()
		if x.slot.mustRelease() {
			return nil
		}
		j := x.nextJob()
		if j == nil {
			return nil
		}
		if !x.slot.reserveSend() {
			x.pending = slices.Insert(x.pending, 0, j)
			return nil
		}
		m := j.newMessage(x)
		under[m] = j
		return m
	}, func(m *smtpclient.Message, r *smtpclient.Result) {
		j := under[m]
		delete(under, m)
		j.close()
		x.handleResult(j, r)
	})
}

// nextJob returns the next job to send to the current target, or nil.
func (x *exchange) nextJob() *job {
	if x.next.action != tryAgain {
		return nil
	}
	for len(x.pending) > 0 {
		j := x.pending[0]
		x.pending = slices.Delete(x.pending, 0, 1)
		if x.queueSession.Owns(j.tx) {
			return j
		}
		x.requeue(j)
	}
	return x.fetchJob()
}

// handleResult handles the result of one SMTP transaction.
func (x *exchange) handleResult(j *job, r *smtpclient.Result) {
	if x.ctx.Err() != nil && r.Err != nil {
		x.pending = append(x.pending, j)
		return
	}
	if errors.Is(r.Err, errLeaseLost) {
		x.requeue(j)
		return
	}
	if notConnected(r) {
		x.pending = append(x.pending, j)
		return
	}
	if r.RcptsBeforeHangup > 0 {
		x.slot.recordHangup(r.RcptsBeforeHangup)
	}
	if r.Err != nil && brokeEarly(r) {
		x.retryJob(j, r)
		return
	}
	if j.lacks8BitMIME(r) && x.reencode(j, r) {
		return
	}
	elsewhere := len(x.targets) > 1 && !j.isPartial() && hostIncapable(r)
	if elsewhere && x.requirements == nil { // other messages still go to this host
		x.separate = append(x.separate, j)
		return
	}
	if elsewhere || x.requirements.lacksRequireTLS(r) || x.target.requiresTLS(r) {
		j.transcript.WriteString(r.Transcript)
		o := queueOutcome(r.Outcomes[0], r, x.via)
		x.requirements.recordRejection(o, elsewhere)
		if x.target.requiresTLS(r) {
			x.agent.hosts.clearTLSFailure(x.target.key())
		}
		x.pending, x.next = append(x.pending, j), exchangeResult{action: tryNext, outcome: o}
		return
	}
	x.slot.recordReplies(r.Outcomes)
	j.recordResult(r, x.via)
	x.countBroken(r)
	switch {
	case len(j.pendingRcpts) > 0: // the host accepts no more recipients at a time
		x.pending = append(x.pending, j)
	case x.brokenCount >= maxBrokenTransactions && x.next.action != destinationFailed && j.isDeferred():
		x.next = exchangeResult{action: destinationFailed, outcome: j.outcomes[0], failed: j}
	default:
		x.queueSession.Finish(j.tx, j.outcomes...)
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
func (x *exchange) retryJob(j *job, r *smtpclient.Result) {
	j.breakCount++
	j.transcript.WriteString(r.Transcript)
	x.pending = slices.Insert(x.pending, 0, j)
	if j.breakCount > 1 || x.agent.opts.Now().Sub(j.startedAt) >= sameHostRetryWindow {
		j.breakCount = 0
		x.next = exchangeResult{action: tryNext, outcome: queueOutcome(r.Outcomes[0], r, x.via)}
		x.requirements.recordBreak()
	}
}

// countBroken counts the transactions in a row that break in the middle. If we abort one because
// its message can't be read, that says nothing about the host.
func (x *exchange) countBroken(r *smtpclient.Result) {
	switch {
	case r.Err == nil:
		x.brokenCount = 0
	case !errors.Is(r.Err, smtpclient.ErrReadBody):
		x.brokenCount++
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
