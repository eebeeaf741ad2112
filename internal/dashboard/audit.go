// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"net/http"

	"github.com/mailstead/mailstead/internal/audit"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/web"
)

// unauditedForms maps the forms without an audit log entry by the router to the reason. A new form
// is audited unless it is added here.
var unauditedForms = map[string]string{
	"POST /sign-in":                    "it writes its entry itself, of a success and of a failure",
	"POST /sign-in/code":               "it writes its entry itself, of a success and of a failure",
	"POST /sign-out":                   "it ends the visitor's own session",
	"POST /forgotten":                  "it changes nothing; the new password has an entry",
	"POST /reset/{token}":              "it writes an entry into each account of the user",
	"POST /join/{token}":               "nobody is known before; the sign-in has an entry",
	"POST /join/{token}/accept":        "the entry belongs into the account that is joined",
	"POST /theme":                      "it sets a cookie",
	"POST /profile/accounts/{id}":      "it chooses which account is shown",
	"POST /mailbox/sign-in":            "a mailbox has a list of sign-ins of its own",
	"POST /mailbox/sign-out":           "it ends the visitor's own session",
	"POST /mailbox/check":              "it changes nothing",
	"POST /mailboxes/{id}/setup/check": "it changes nothing",
	"POST /templates/preview":          "it changes nothing",
	"POST /phone/once/{token}":         "nobody is known before the link is spent; the entry follows",
}

// partialForms are the forms that may have done part of their work when they fail.
var partialForms = map[string]bool{
	"POST /suppressions/import": true, "POST /migrations/many": true, "POST /webhooks/{id}/replay": true,
	"POST /operator/queue/retry": true, "POST /operator/queue/hold": true, "POST /operator/queue/release": true,
}

// auditActor returns the actor of the request for the audit log.
func (v *requestContext) auditActor() audit.Actor {
	if v.ownerMailbox != 0 {
		return audit.Actor{Kind: audit.ActorMailbox, ID: v.ownerMailbox, Name: v.session.User.Email, IP: web.ClientAddr(v.r)}
	}
	return v.session.Actor(web.ClientAddr(v.r))
}

// auditEntry returns an audit log entry about the request.
func (v *requestContext) auditEntry(what string) audit.Entry {
	e := audit.Entry{Account: v.session.Account, Actor: v.auditActor(), Action: v.r.Pattern, Description: what}
	for _, name := range []string{"id", "app", "delivery"} { // never a token
		if value := v.r.PathValue(name); value != "" {
			if e.Object != "" {
				e.Object += "/"
			}
			e.Object += value
		}
	}
	return e
}

// beginAudit writes the entry of a form's action in advance: if it can't, the action doesn't run.
func (v *requestContext) beginAudit() (err error) {
	if v.auditBegun || v.r.Method != http.MethodPost || unauditedForms[v.r.Pattern] != "" {
		return nil
	}
	v.pendingEntry, err = v.d.Audit.Begin(v.ctx, v.auditEntry(v.r.Pattern))
	v.auditBegun = err == nil
	return err
}

// abortAudit discards the entry if an error means that nothing was done. After other errors the
// entry stays, as failed.
func (v *requestContext) abortAudit(err error) {
	if err := v.pendingEntry.Abort(v.ctx, err, partialForms[v.r.Pattern]); err != nil {
		v.d.Log.ErrorContext(v.ctx, "completing an audit log entry failed", "request", v.requestID(), "error", err)
	}
}

// Audit log descriptions of reading mail.
const (
	auditReadMessage       = "Read a message"
	auditDownloadedMessage = "Downloaded a message"
	auditDownloadedFile    = "Downloaded a file of a message"
)

// auditMailRead records that the user reads mail, before the page shows it. box is the mailbox of
// the mail, or zero for mail of the account.
func (v *requestContext) auditMailRead(what string, box mailbox.Mailbox) error {
	if box.ID != 0 {
		what += " in " + box.Address
	}
	e := v.auditEntry(what + ".")
	e.Action = "mail.read"
	return v.d.Audit.RecordRead(context.WithoutCancel(v.ctx), e)
}
