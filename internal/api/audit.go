// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"reflect"
	"strings"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/audit"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/web"
	"github.com/mailstead/mailstead/internal/webhook"
)

// auditPhrases maps each operation that changes something to its description in the audit log.
var auditPhrases = map[string]string{
	"createDomain": "Added the domain", "deleteDomain": "Deleted the domain", "updateDomain": "Changed the domain",
	"verifyDomain": "Checked the ownership record of", "verifyDomainDNS": "Checked the DNS records of",
	"addDKIMKey": "Added a DKIM key to", "rotateDKIM": "Rotated the DKIM keys of", "deleteDKIMKey": "Deleted a DKIM key of",
	"createMailbox": "Created the mailbox", "updateMailbox": "Changed the mailbox", "deleteMailbox": "Deleted the mailbox",
	"restoreMailbox": "Restored the mailbox", "setMailboxPassword": "Set the password of",
	"createAppPassword": "Created an app password for", "revokeAppPassword": "Revoked an app password of",
	"createAppleProfile": "Created an Apple profile with an app password for",
	"setVacation":        "Set the automatic reply of", "deleteVacation": "Deleted the automatic reply of", "importMailbox": "Imported mail into",
	"createAlias": "Created the alias", "updateAlias": "Changed the alias", "deleteAlias": "Deleted the alias",
	"createAPIKey": "Created the API key", "deleteAPIKey": "Deleted the API key",
	"createWebhook": "Created the webhook", "updateWebhook": "Changed the webhook", "deleteWebhook": "Deleted the webhook",
	"rotateWebhookSecret": "Rotated the secret of the webhook", "testWebhook": "Sent a test to the webhook",
	"redeliverWebhookDelivery": "Sent an event again to the webhook", "replayWebhook": "Replayed events to the webhook",
	"createTemplate": "Created the template", "updateTemplate": "Changed the template", "deleteTemplate": "Deleted the template",
	"duplicateTemplate": "Copied a template to", "publishTemplate": "Published the template",
	"addSuppression": "Suppressed an address", "addSuppressions": "Suppressed addresses", "deleteSuppression": "Removed a suppression",
	"importSuppressions": "Imported suppressions",
	"rescheduleMessage":  "Rescheduled a message", "cancelMessage": "Cancelled a message", "retryMessage": "Retried a message",
	"createMigration": "Started a migration", "cancelMigration": "Cancelled a migration", "clearOutbox": "Cleared the sandbox's outbox",
	"createAccount": "Created the account", "updateAccount": "Changed the account", "setAccountLimits": "Set the limits of the account",
	"suspendDomain": "Changed the suspension of the domain",
	"retryQueue":    "Retried queued mail", "holdQueue": "Held queued mail", "releaseQueue": "Released queued mail", "dropQueue": "Dropped queued mail",
}

// unauditedOperations maps the operations without an audit log entry to the reason.
var unauditedOperations = map[string]string{
	"send": "the sent message is the record, with its events", "sendBatch": "the sent messages are the record, with their events",
	"sendTemplate": "the sent message is the record, with its events", "simulateInbound": "it exists in the sandbox only, and makes an event",
	"renderTemplate": "it changes nothing", "testMigrationSource": "it changes nothing", "checkClientSetup": "it changes nothing",
}

// partialOperations are the operations that may have done part of their work when they fail.
var partialOperations = map[string]bool{
	"importMailbox": true, "importSuppressions": true, "replayWebhook": true,
	"retryQueue": true, "holdQueue": true, "releaseQueue": true, "dropQueue": true,
}

// auditedFields are the request fields whose values the audit log shows. It shows only the names of
// other fields.
var auditedFields = map[string]bool{"forward_to": true, "targets": true, "scopes": true, "status": true, "include_content": true, "domain": true}

// auditRecord collects the facts about a change for the audit log.
type auditRecord struct {
	phrase, objectName, fields, objectID string
	finish                               func(error)
}

type auditRecordKey struct{}

// auditRecordFrom returns the record of a request. For a request without one, it returns a record
// that is discarded.
func auditRecordFrom(ctx context.Context) *auditRecord {
	if r, ok := ctx.Value(auditRecordKey{}).(*auditRecord); ok {
		return r
	}
	return &auditRecord{finish: func(error) {}}
}

func (r *auditRecord) summary() string {
	text := r.phrase
	if r.objectName != "" {
		text += " " + r.objectName
	}
	if r.fields != "" {
		text += " (" + r.fields + ")"
	}
	return text + "."
}

// withAudit runs a request. It writes the audit log entry before and completes it afterwards: if
// the entry can't be written, nothing changes.
func (a *API) withAudit(o operation, req *http.Request, p account.Principal, act func(req *http.Request) error) error {
	what := auditPhrases[o.id]
	if o.method == http.MethodGet || what == "" {
		return act(req)
	}
	ctx := db.WithCommitGuard(req.Context(), nil) // the guard belongs to the change
	from, _ := netip.ParseAddrPort(req.RemoteAddr)
	e := audit.Entry{Account: p.Account, Actor: audit.Actor{Kind: audit.ActorAPIKey, ID: p.Key, Name: p.Name, IP: from.Addr()}, Action: o.id, Object: objectIDs(req)}
	r := &auditRecord{phrase: what, objectName: a.objectName(ctx, p, o.path, req.PathValue("id"))}
	e.Description = r.summary()
	pending, err := a.Audit.Begin(ctx, e)
	if err != nil {
		return err
	}
	ended := false
	r.finish = func(err error) {
		if ended {
			return
		}
		ended = true
		if err == nil {
			err = errors.Join(a.copyToCustomerAudit(ctx, p, o, e, r.summary()), pending.Done(ctx, r.summary(), r.objectID))
		} else {
			err = pending.Abort(ctx, err, partialOperations[o.id])
		}
		if err != nil { // the entry stays pending, which says that the outcome is unknown
			a.Log.ErrorContext(ctx, "completing an audit log entry failed", "request", web.RequestIDFromContext(ctx), "error", err)
		}
	}
	err = act(req.WithContext(context.WithValue(req.Context(), auditRecordKey{}, r)))
	r.finish(err)
	return err
}

// copyToCustomerAudit also writes an operator's action on an account to that account's audit log.
func (a *API) copyToCustomerAudit(ctx context.Context, p account.Principal, o operation, e audit.Entry, text string) error {
	if p.Account != account.OperatorAccount || !strings.HasPrefix(o.path, "/operator/accounts/") {
		return nil
	}
	id, err := db.ParseID(e.Object)
	if err != nil {
		return err
	}
	return a.Audit.WriteForCustomer(ctx, id, e.Action, text)
}

// objectIDs returns the ids in a request's path, joined by slashes.
func objectIDs(req *http.Request) string {
	object := req.PathValue("id")
	for _, name := range []string{"password", "key", "delivery"} {
		if value := req.PathValue(name); value != "" {
			object += "/" + value
		}
	}
	return object
}

// objectName returns the name of the object that a path is about, or "" if it doesn't exist.
func (a *API) objectName(ctx context.Context, p account.Principal, path, text string) (name string) {
	resource := strings.Split(path, "/")[1]
	id, err := db.ParseID(text)
	if err != nil && resource == "templates" && text != "" {
		id, err = a.Templates.FindID(ctx, p.Account, text)
	}
	if err != nil {
		return ""
	}
	switch resource {
	case "mailboxes":
		m, err := a.Mailboxes.Get(ctx, p.Account, id)
		if err == nil {
			name = m.Address
		}
	case "domains":
		d, err := a.Domains.Get(ctx, p.Account, id)
		if err == nil {
			name = d.Name
		}
	case "api-keys":
		k, err := a.apiKey(ctx, p, id)
		if err == nil {
			name = k.Name
		}
	case "templates":
		t, err := a.Templates.Get(ctx, p.Account, id)
		if err == nil {
			name = t.Name
		}
	case "webhooks":
		w, err := a.Webhooks.Get(ctx, p.Account, id)
		if err == nil {
			name = webhook.Origin(w.URL)
		}
	case "aliases":
		x, err := a.Mailboxes.GetAlias(ctx, p.Account, id)
		if err == nil {
			name = x.Address
		}
	}
	return name
}

// setFields records which fields a request sets. Values may be secrets, so it records only those of
// a few fields.
func (r *auditRecord) setFields(in any) {
	body := reflect.ValueOf(in).Elem().FieldByName("Body")
	for body.IsValid() && body.Kind() == reflect.Pointer {
		body = body.Elem()
	}
	if !body.IsValid() || body.Kind() != reflect.Struct {
		return
	}
	var fields []string
	for i := range body.NumField() {
		name, _, _ := strings.Cut(body.Type().Field(i).Tag.Get("json"), ",")
		value := body.Field(i)
		if name == "" || name == "-" || value.IsZero() {
			continue
		}
		for value.Kind() == reflect.Pointer {
			value = value.Elem()
		}
		if auditedFields[name] {
			name += fmt.Sprintf(" %v", value.Interface())
		}
		fields = append(fields, name)
	}
	r.fields = strings.Join(fields, ", ")
}

// setResult records the changed object from a response.
func (r *auditRecord) setResult(out any) {
	v := reflect.ValueOf(out)
	if v.Kind() != reflect.Struct {
		return
	}
	text := func(name string) string {
		f := v.FieldByName(name)
		if !f.IsValid() || f.Kind() != reflect.String {
			return ""
		}
		return f.String()
	}
	if id, ok := fieldValue(v, "ID").(db.ID); ok && r.objectID == "" && r.objectName == "" {
		r.objectID = id.String()
	}
	for _, name := range []string{"Address", "Email", "Name"} {
		if r.objectName == "" {
			r.objectName = text(name)
		}
	}
	if r.objectName == "" {
		r.objectName = webhook.Origin(text("URL"))
	}
}

func fieldValue(v reflect.Value, name string) any {
	f := v.FieldByName(name)
	if !f.IsValid() || !f.CanInterface() {
		return nil
	}
	return f.Interface()
}
