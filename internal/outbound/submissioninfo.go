// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// wantsReports reports whether the sender gets delivery reports by mail: API mail has events
// instead, and nobody replies to the null sender.
func (r *row) wantsReports() bool { return !r.isFromAPI() && r.sender != "" }

// SubmissionInfo is what a report to the sender says about a submission.
type SubmissionInfo struct {
	ID            db.ID
	Account       db.ID
	Mailbox       db.ID  // mailbox that submitted it
	ForwardDomain db.ID  // the domain that forwarded it; 0: not forwarded
	DomainLost    bool   // the account no longer owns ForwardDomain
	Sender        string // MAIL FROM; never empty
	MessageID     string
	Subject       string
	Ret           string // RET of RFC 3461: "FULL", "HDRS" or ""
	EnvID         string // ENVID, decoded
	UTF8          bool   // its header has raw UTF-8
	EightBit      bool   // its body has octets above 127
	Size          int64
	Blob          db.ID // as sent, without signatures
	CreatedAt     time.Time
	// RequireTLS means that the report requires TLS too (RFC 8689 §5), and that Ret is HDRS.
	RequireTLS bool
}

// SubmissionInfo returns a submission whose sender is to be notified, or fault.NotFound.
func (o *Outbox) SubmissionInfo(ctx context.Context, id db.ID) (SubmissionInfo, error) {
	r, err := o.loadRow(ctx, id)
	if err != nil {
		return SubmissionInfo{}, err
	}
	if !r.wantsReports() {
		return SubmissionInfo{}, notFoundError()
	}
	var forwards db.ID
	if r.forwarder != 0 {
		forwards = r.domain
		_, err = o.signingDomain(ctx, r.domain)
	}
	lost := isDomainLost(err)
	if err != nil && !lost {
		return SubmissionInfo{}, err
	}
	demands := r.requireTLS == tlsRequired
	if demands {
		r.ret = "HDRS"
	}
	return SubmissionInfo{
		ForwardDomain: forwards, DomainLost: lost, ID: r.id, Account: r.account, Mailbox: r.mailbox, Sender: r.sender, MessageID: r.messageID, Subject: r.subject,
		Ret: r.ret, EnvID: r.envid, UTF8: r.utf8, EightBit: r.eightBit, Size: r.size, Blob: r.blob, CreatedAt: r.created, RequireTLS: demands,
	}, nil
}
