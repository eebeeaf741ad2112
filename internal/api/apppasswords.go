// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/apijson"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/mailbox"
)

// mailboxAccessRoutes registers the endpoints for a mailbox's app passwords and sessions.
func (a *API) mailboxAccessRoutes(r *router) {
	handle(r, operation{method: "POST", path: "/mailboxes/{id}/app-passwords", id: "createAppPassword", validatesFirst: true, scope: "mailboxes.write", status: 201, mayConflict: true,
		summary: "Make an app password", description: "A password for one application or device, beside the mailbox's own and to be revoked by itself. It is generated, and shown in this answer only; " +
			"hyphens and case don't matter when it is typed. A mailbox has 50 at most. A change of the mailbox's own password leaves them valid."}, a.createAppPassword)
	handle(r, operation{method: "GET", path: "/mailboxes/{id}/app-passwords", id: "listAppPasswords", scope: "mailboxes.read",
		summary: "List a mailbox's app passwords", description: "Newest first. The passwords themselves are not shown."}, a.listAppPasswords)
	handle(r, operation{method: "DELETE", path: "/mailboxes/{id}/app-passwords/{password}", id: "revokeAppPassword", scope: "mailboxes.write", status: 204,
		summary: "Revoke an app password", description: "It stops working at once, and sessions that were signed in to with it end."}, a.revokeAppPassword)
	handle(r, operation{method: "GET", path: "/mailboxes/{id}/sessions", id: "listMailboxSessions", scope: "mailboxes.read",
		summary: "List the IMAP sessions of a mailbox", description: "The connections that are signed in now, on all nodes, newest first; of other nodes those of the last seconds may be missing. " +
			"A session ends when the app password that it stands on is revoked, and otherwise with a new password or when the mailbox is suspended."}, a.listMailboxSessions)
	handle(r, operation{method: "GET", path: "/mailboxes/{id}/sign-ins", id: "listSignIns", scope: "mailboxes.read",
		summary: "List who signed in to a mailbox", description: "And who tried to, newest first. What repeats within an hour, from one address and with one result, is one entry. " +
			"The newest 200 that succeeded and the newest 200 others are kept, for 90 days. Attempts that were refused unseen, since too many had failed before, are not listed."}, a.listSignIns)
}

type appPasswordResponse struct {
	ID         db.ID              `json:"id" doc:"The app password's id."`
	Name       string             `json:"name" doc:"What it is for." example:"Ann's phone"`
	Protocols  []string           `json:"protocols" enum:"imap,smtp" doc:"What it is good for: reading (imap), sending (smtp)." example:"imap"`
	Password   apijson.NullString `json:"password" doc:"Shown only in the response that created it; else null." example:"abcde-fghij-klmno-pqrst-uvwxyz"`
	CreatedAt  time.Time          `json:"created_at" doc:"When it was made."`
	LastUsedAt *time.Time         `json:"last_used_at" doc:"When it was last used, to the hour; null for never."`
}

func newAppPasswordResponse(p mailbox.AppPassword) appPasswordResponse {
	out := appPasswordResponse{ID: p.ID, Name: p.Name, Protocols: []string{}, CreatedAt: utcTime(p.CreatedAt), LastUsedAt: optionalTime(p.LastUsedAt)}
	for _, one := range p.Protocols {
		out.Protocols = append(out.Protocols, string(one))
	}
	return out
}

type createAppPasswordRequest struct {
	Name      string   `json:"name" doc:"What it is for, in at most 100 bytes." example:"Ann's phone"`
	Protocols []string `json:"protocols,omitempty" enum:"imap,smtp" doc:"What it is good for; both when left out." example:"imap"`
}

type createAppPasswordInput struct {
	idParams
	Body createAppPasswordRequest
}

func (a *API) createAppPassword(ctx context.Context, p account.Principal, in *createAppPasswordInput) (appPasswordResponse, error) {
	id, err := a.mailboxID(ctx, p, &in.idParams)
	if err != nil {
		return appPasswordResponse{}, err
	}
	protocols := in.Body.Protocols
	if protocols == nil {
		protocols = []string{string(mailbox.IMAP), string(mailbox.SMTP)}
	}
	made, password, err := a.Mailboxes.CreateAppPassword(ctx, p.Account, id, in.Body.Name, protocols)
	if err != nil {
		return appPasswordResponse{}, err
	}
	out := newAppPasswordResponse(made)
	out.Password = apijson.NullString(password)
	return out, nil
}

type listByMailboxInput struct {
	idParams
	pageParams
}

func (a *API) listAppPasswords(ctx context.Context, p account.Principal, in *listByMailboxInput) (listResponse[appPasswordResponse], error) {
	return listByMailbox(ctx, a, p, in, a.Mailboxes.AppPasswords, newAppPasswordResponse, func(p mailbox.AppPassword) db.ID { return p.ID })
}

// listByMailbox responds with a list of objects that belong to a mailbox.
func listByMailbox[S, T any](ctx context.Context, a *API, p account.Principal, in *listByMailboxInput,
	read func(ctx context.Context, account, mailbox db.ID, page db.Page) ([]S, bool, error), show func(S) T, id func(S) db.ID) (listResponse[T], error) {
	box, err := a.mailboxID(ctx, p, &in.idParams)
	if err != nil {
		return listResponse[T]{}, err
	}
	return listPage(&in.pageParams, func(at db.Page) ([]S, bool, error) { return read(ctx, p.Account, box, at) }, show, id)
}

type appPasswordInput struct {
	idParams
	Password string `path:"password" format:"uuid" doc:"The app password's id."`
}

func (a *API) revokeAppPassword(ctx context.Context, p account.Principal, in *appPasswordInput) (emptyResponse, error) {
	box, err := a.mailboxID(ctx, p, &in.idParams)
	if err != nil {
		return emptyResponse{}, err
	}
	id, err := db.ParseID(in.Password)
	if err != nil {
		return emptyResponse{}, err
	}
	return emptyResponse{}, a.Mailboxes.RevokeAppPassword(ctx, p.Account, box, id)
}

type sessionResponse struct {
	ID          db.ID     `json:"id" doc:"The session's id."`
	Protocol    string    `json:"protocol" enum:"imap" doc:"What for: reading (imap)."`
	IP          string    `json:"ip" doc:"The client's network address." example:"192.0.2.7"`
	AppPassword *string   `json:"app_password" doc:"The name of the app password that was used; null for the mailbox's own."`
	Program     *string   `json:"program" doc:"What the client calls itself; null if it doesn't say." example:"Thunderbird 140.0"`
	StartedAt   time.Time `json:"started_at" doc:"When it signed in."`
}

func newSessionResponse(s mailbox.Session) sessionResponse {
	return sessionResponse{
		ID: s.ID, Protocol: string(s.Protocol), IP: s.Address, AppPassword: optionalString(s.AppPassword), Program: optionalString(s.Program), StartedAt: utcTime(s.Since),
	}
}

func (a *API) listMailboxSessions(ctx context.Context, p account.Principal, in *listByMailboxInput) (listResponse[sessionResponse], error) {
	return listByMailbox(ctx, a, p, in, a.Mailboxes.Sessions, newSessionResponse, func(s mailbox.Session) db.ID { return s.ID })
}

type signInResponse struct {
	ID          db.ID     `json:"id" doc:"The entry's id."`
	Protocol    string    `json:"protocol" enum:"imap,smtp,web" doc:"What for: reading (imap), sending (smtp), the owner's page (web)."`
	IP          string    `json:"ip" doc:"The client's network address; of wrong passwords over IPv6 its network (/64)." example:"192.0.2.7"`
	Result      string    `json:"result" enum:"ok,wrong_password,no_verifier,suspended,wrong_protocol" doc:"suspended: the password was right. wrong_protocol: an app password that was not made for this. no_verifier: the client chose SCRAM-SHA-256, which can be used after a sign-in by PLAIN or LOGIN, or with a new password."`
	AppPassword *string   `json:"app_password" doc:"The name of the app password that was used; null for the mailbox's own."`
	Count       int64     `json:"count" doc:"How often." example:"3"`
	FirstAt     time.Time `json:"first_at" doc:"When first."`
	LastAt      time.Time `json:"last_at" doc:"When last; within an hour of the first time."`
}

func newSignInResponse(s mailbox.SignIn) signInResponse {
	return signInResponse{
		ID: s.ID, Protocol: string(s.Protocol), IP: s.Address, Result: s.Result, AppPassword: optionalString(s.AppPassword), Count: s.Times,
		FirstAt: utcTime(s.FirstAt), LastAt: utcTime(s.LastAt),
	}
}

func (a *API) listSignIns(ctx context.Context, p account.Principal, in *listByMailboxInput) (listResponse[signInResponse], error) {
	return listByMailbox(ctx, a, p, in, a.Mailboxes.SignIns, newSignInResponse, func(s mailbox.SignIn) db.ID { return s.ID })
}
