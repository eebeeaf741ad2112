// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"slices"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

// codeNo8BitMIME is the status code of a local rejection because the host lacks 8BITMIME.
const codeNo8BitMIME = "5.6.3"

// lacks8BitMIME reports whether a message was rejected only because the host lacks 8BITMIME, and
// has a 7-bit form.
func (j *job) lacks8BitMIME(r *smtpclient.Result) bool {
	return j.message.SevenBit != nil && !slices.ContainsFunc(r.Outcomes, func(o smtpclient.Outcome) bool {
		return !o.Local || o.Reply.Enhanced != codeNo8BitMIME
	})
}

// reencode replaces a job's message with its 7-bit form, for the same host. It returns false if the
// message can't be encoded.
func (s *deliverySession) reencode(j *job, r *smtpclient.Result) bool {
	seven, err := j.message.SevenBit(s.ctx)
	if fault.Is(err, fault.Denied) {
		return false
	}
	j.transcript.WriteString(r.Transcript)
	if err == nil {
		j.transcript.WriteString("* re-encoded for a host without 8BITMIME\n")
		j.message = seven
		s.pending = slices.Insert(s.pending, 0, j)
		return true
	}
	s.agent.opts.Log.Error("a message could not be re-encoded", "message", j.tx.Mail.ID, "error", err)
	s.finish(j, queue.Outcome{State: queue.Deferred, Enhanced: "4.3.0", Stage: "local", Reply: "the message could not be re-encoded", Via: s.via})
	return true
}
