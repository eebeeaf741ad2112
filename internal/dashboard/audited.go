// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"net/http"

	"github.com/mailstead/mailstead/internal/audit"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
)

// unaudited are the forms that the router writes no entry of the audit log for, with
// the reason. A new form is audited unless it is added here.
var unaudited = map[string]string{
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

// partial are the forms that may have done some of their work when they fail.
var partial = map[string]bool{
	"POST /suppressions/import": true, "POST /migrations/many": true, "POST /webhooks/{id}/replay": true,
	"POST /operator/queue/retry": true, "POST /operator/queue/hold": true, "POST /operator/queue/release": true,
}

// actor is who visits, for the audit log.
func (v *visit) actor() audit.Actor {
	if v.owner != 0 {
		return audit.Actor{Kind: audit.Mailbox, ID: v.owner, Name: v.in.User.Email, From: client(v.r)}
	}
	return v.in.Actor(client(v.r))
}

// entry is an entry of the audit log about this visit.
func (v *visit) entry(what string) audit.Entry {
	e := audit.Entry{Account: v.in.Account, Actor: v.actor(), Action: v.r.Pattern, What: what}
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

// begin writes the entry of what a form does, before it is done: without one it is not.
func (v *visit) begin() (err error) {
	if v.begun || v.r.Method != http.MethodPost || unaudited[v.r.Pattern] != "" {
		return nil
	}
	v.pending, err = v.d.Audit.Begin(v.ctx, v.entry(v.r.Pattern))
	v.begun = err == nil
	return err
}

// ended takes the entry back after an error that says that nothing was done. After
// others it stays, as failed.
func (v *visit) ended(err error) {
	end := v.pending.Drop
	if partial[v.r.Pattern] || fault.KindOf(err) == fault.Internal {
		end = v.pending.Failed
	}
	if err := end(v.ctx); err != nil {
		v.d.Log.ErrorContext(v.ctx, "completing an audit log entry failed", "request", v.requestID(), "error", err)
	}
}

// tellCustomer writes what an operator did with an account into that account, too.
func (v *visit) tellCustomer(did done) error {
	return v.d.Audit.Write(context.WithoutCancel(v.ctx), audit.Entry{
		Account: did.Customer, Actor: audit.Actor{Kind: audit.Operator, Name: "operator"},
		Action: v.r.Pattern, Object: did.Customer.String(), What: did.Told,
	})
}

// What the audit log says of mail that is read.
const (
	toldRead = "Read a message"
	toldRaw  = "Downloaded a message"
	toldFile = "Downloaded a file of a message"
)

// reads writes that the visitor reads mail, before it is shown. box is the mailbox
// that the mail is in; the zero one for mail of the account.
func (v *visit) reads(what string, box mailbox.Mailbox) error {
	if box.ID != 0 {
		what += " in " + box.Address
	}
	e := v.entry(what + ".")
	e.Action = "mail.read"
	return v.d.Audit.Read(context.WithoutCancel(v.ctx), e)
}
