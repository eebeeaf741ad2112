// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"slices"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

// lacks8Bit is the code with which a message is refused here as its host lacks 8BITMIME.
const lacks8Bit = "5.6.3"

// lacks8Bit reports whether that is why a host did not get a message, which may go there
// in another form.
func (j *job) lacks8Bit(r *smtpclient.Result) bool {
	return j.mail.SevenBit != nil && !slices.ContainsFunc(r.Outcomes, func(o smtpclient.Outcome) bool {
		return !o.Local || o.Reply.Enhanced != lacks8Bit
	})
}

// encode makes a job go to the host in seven bits. It is false if the message can't be
// encoded.
func (s *shift) encode(j *job, r *smtpclient.Result) bool {
	seven, err := j.mail.SevenBit(s.ctx)
	if fault.Is(err, fault.Denied) {
		return false
	}
	j.trail.WriteString(r.Transcript)
	if err == nil {
		j.trail.WriteString("* re-encoded for a host without 8BITMIME\n")
		j.mail = seven
		s.pending = slices.Insert(s.pending, 0, j)
		return true
	}
	s.c.o.Log.Error("a message could not be re-encoded", "message", j.c.Mail.ID, "error", err)
	j.rest(queue.Outcome{State: queue.Deferred, Enhanced: "4.3.0", Stage: "local", Reply: "the message could not be re-encoded", Via: s.via})
	s.run.Done(j.c, j.outcomes...)
	return true
}
