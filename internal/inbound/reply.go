// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"errors"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/spam"
)

// Reply is an SMTP reply (RFC 5321 §4.2, RFC 3463).
type Reply struct {
	Code     int
	Enhanced string // "" for none
	Text     string
}

// ReplyFor returns the SMTP reply for an error, for all servers that receive mail. ours is true for
// an internal error, which the caller should log: the client learns only that it may retry.
func ReplyFor(err error) (r Reply, ours bool) {
	var bare *message.LineEndError
	if errors.As(err, &bare) {
		return Reply{550, "5.5.2", "The message has a CR or LF that is not a CR LF (RFC 5321, section 2.3.8)"}, false
	}
	var f *fault.Error
	if !errors.As(err, &f) {
		f = &fault.Error{}
	}
	switch f.Kind {
	case fault.Invalid:
		return Reply{554, "5.6.0", f.Message}, false
	case fault.TooLarge:
		return Reply{552, "5.3.4", f.Message}, false
	case fault.RateLimited:
		return Reply{450, "4.7.1", f.Message}, false
	case fault.OverQuota:
		if f.Code == mailbox.CodeMailboxFullLong {
			return Reply{552, "5.2.2", f.Message}, false
		}
		return Reply{452, "4.2.2", f.Message}, false
	case fault.NotFound:
		if f.Code == mailbox.CodeDomainNotHosted {
			return Reply{550, "5.7.1", f.Message}, false
		}
		return Reply{550, "5.1.1", f.Message}, false
	case fault.Denied, fault.Unauthenticated, fault.Conflict:
		switch f.Code {
		case mailbox.CodeMailboxSuspended:
			return Reply{550, "5.2.1", f.Message}, false
		case CodeLoop:
			return Reply{554, "5.4.6", f.Message}, false
		}
		return Reply{550, "5.7.1", f.Message}, false
	case fault.Unavailable:
		switch f.Code {
		case mailbox.CodeNoPostmaster, CodeRecipientSuspended:
			return Reply{450, "4.2.1", f.Message}, false
		case CodeDMARCTempError:
			return Reply{451, "4.7.0", f.Message}, false
		case CodeSpamDeferred, spam.CodeUnavailable:
			return Reply{451, "4.7.1", f.Message}, false
		}
		return Reply{451, "4.3.0", f.Message}, true
	}
	return Reply{451, "4.3.0", "Something went wrong here; try again later"}, true
}
