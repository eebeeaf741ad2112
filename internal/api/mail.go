// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/digest"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
)

// KeptFields are what is told of every message in a mailbox. It is exported
// for the OpenAPI document.
type KeptFields struct {
	ID         db.ID           `json:"id" doc:"The message's id: the same in whichever folder it is, until it is in none. It is the id in the data of its inbound_email event."`
	MailboxID  db.ID           `json:"mailbox_id" doc:"The mailbox."`
	ThreadID   *string         `json:"thread_id" nullable:"true" doc:"The thread it belongs to; null for what a mail program stored."`
	OutboundID *db.ID          `json:"outbound_id" nullable:"true" doc:"The sent message that this is a copy of, if it came from a mailbox or an application here."`
	Size       int64           `json:"size" doc:"Of the whole message, in bytes." example:"4711"`
	Folders    []placeAnswer   `json:"folders" nullable:"false" doc:"The folders that show it, at most 20."`
	Verdicts   digest.Verdicts `json:"verdicts" doc:"How it was judged when it arrived."`
	ReceivedAt time.Time       `json:"received_at" doc:"When it came, as mail programs see it."`
	RawURL     string          `json:"raw_url" doc:"Where the whole message can be had, with your API key."`
}

type mailboxMessageListed struct {
	KeptFields
	digest.Summary
}

type mailboxMessageAnswer struct {
	KeptFields
	digest.Summary
	digest.Content
}

type placeAnswer struct {
	Folder string   `json:"folder" doc:"The folder's name, with / between levels." example:"INBOX"`
	UID    uint32   `json:"uid" doc:"The message's UID there." example:"7"`
	Flags  []string `json:"flags" nullable:"false" doc:"Its flags and keywords there." example:"\\Seen"`
}

type keptInput struct {
	ID      string `path:"id" format:"uuid" doc:"The mailbox's id."`
	Message string `path:"message" format:"uuid" doc:"The message's id."`
}

type keptFileInput struct {
	keptInput
	N string `path:"n" doc:"The file's number, n in the message's attachments."`
}

type listKeptInput struct {
	one
	page
	Folder  string `query:"folder" doc:"Only what this folder shows. A name below another has a / between them." example:"INBOX"`
	Since   string `query:"since" format:"date-time" doc:"Only what came to the mailbox at this time or later." example:"2026-01-31T00:00:00Z"`
	From    string `query:"from" doc:"Only messages by this author, in any case, or by any author of this domain." example:"bob@example.org"`
	Subject string `query:"subject" doc:"Only messages whose subject contains this, in any case." example:"order"`
}

// readMail is the scope for what mail says. An answer under another scope leaves that
// out for a key without this one.
const readMail = "mail.read"

func (a *API) mailRoutes(r *router) {
	const scope = readMail
	handle(r, operation{method: "GET", path: "/mailboxes/{id}/messages", id: "listMailboxMessages", scope: scope,
		summary: "List the messages in a mailbox", description: "In all folders, the last to come first. All that is asked for must hold. " +
			"A page may be short, or empty, although `has_more` is true, when few of many messages are right: go on with the cursor."}, a.listKept)
	handle(r, operation{method: "GET", path: "/mailboxes/{id}/messages/{message}", id: "getMailboxMessage", scope: scope,
		summary: "Show a message in a mailbox", description: "Its header, its texts and a list of its files, as in the `inbound_email` event. " +
			"Reading it here doesn't mark it as read. What the service itself wrote to whoever reads the mailbox is a 403 with the code `service_message`."}, a.getKept)
	handleFile(r, operation{method: "GET", path: "/mailboxes/{id}/messages/{message}/raw", id: "getMailboxMessageRaw", scope: scope, media: "message/rfc822",
		summary: "The whole message as it is stored", description: "All of its bytes, with the trace fields that were put on top (RFC 5322)."}, a.keptRaw)
	handleFile(r, operation{method: "GET", path: "/mailboxes/{id}/messages/{message}/attachments/{n}", id: "getMailboxMessageAttachment", scope: scope, media: "*/*",
		summary: "A file of a message", description: "Decoded. It is always offered for download, and where a browser could run what is in it the type is " +
			"application/octet-stream; `content_type` tells what the sender claims."}, a.keptFile)
}

// box finds a mailbox whose mail the principal may see.
func (a *API) box(ctx context.Context, p account.Principal, id string) (db.ID, error) {
	box, err := a.mailboxID(ctx, p, &one{id})
	if err == nil {
		_, err = a.Mailboxes.Get(ctx, p.Account, box)
	}
	return box, err
}

// kept finds a message.
func (a *API) kept(ctx context.Context, p account.Principal, in *keptInput) (folder.Kept, error) {
	box, err := a.box(ctx, p, in.ID)
	if err != nil {
		return folder.Kept{}, err
	}
	id, err := db.ParseID(in.Message)
	if err != nil {
		return folder.Kept{}, err
	}
	return a.Folders.Message(ctx, box, id)
}

func (a *API) listKept(ctx context.Context, p account.Principal, in *listKeptInput) (list[mailboxMessageListed], error) {
	none := list[mailboxMessageListed]{Data: []mailboxMessageListed{}}
	box, err := a.box(ctx, p, in.ID)
	if err != nil {
		return none, err
	}
	var bad fault.Fields
	at, err := in.db()
	if err := merge(&bad, err); err != nil {
		return none, err
	}
	f := folder.KeptFilter{Folder: in.Folder, From: in.From, Subject: in.Subject}
	if in.Since != "" {
		if f.Since, err = time.Parse(time.RFC3339, in.Since); err != nil {
			bad.Add("since", "invalid_time", "Give a time such as 2026-01-31T09:00:00Z (RFC 3339).")
		}
	}
	if err := merge(&bad, f.Check()); err != nil {
		return none, err
	}
	if err := bad.Err(); err != nil {
		return none, err
	}
	found, more, next, err := a.Folders.Messages(ctx, box, f, at)
	if err != nil {
		return none, fieldFault(err, "folder", "There is no such folder in this mailbox.")
	}
	show := func(k folder.Kept) mailboxMessageListed { return mailboxMessageListed{a.showKept(k), k.Summary} }
	out := answer(in.page, found, more, show, func(folder.Kept) string { return "" })
	if more {
		cursor := next.String()
		out.NextCursor = &cursor
	}
	return out, nil
}

func (a *API) getKept(ctx context.Context, p account.Principal, in *keptInput) (mailboxMessageAnswer, error) {
	k, err := a.kept(ctx, p, in)
	if err != nil {
		return mailboxMessageAnswer{}, err
	}
	index, r, err := a.Folders.OpenParts(ctx, k.ID)
	if err != nil {
		return mailboxMessageAnswer{}, gone(err)
	}
	defer r.Close() //nolint:errcheck // only read
	out := mailboxMessageAnswer{KeptFields: a.showKept(k)}
	if out.Summary, out.Content, err = digest.Read(r, index); err != nil {
		return mailboxMessageAnswer{}, err
	}
	out.Link(a.messageURL(k))
	return out, nil
}

// gone makes what was expunged meanwhile look like what was never there.
func gone(err error) error {
	if fault.Is(err, fault.NotFound) {
		return errNotFound
	}
	return err
}

func (a *API) keptRaw(ctx context.Context, p account.Principal, in *keptInput) (*file, error) {
	k, err := a.kept(ctx, p, in)
	if err != nil {
		return nil, err
	}
	r, err := a.Folders.OpenMessage(ctx, k.ID)
	if err != nil {
		return nil, gone(err)
	}
	return &file{name: k.ID.String() + ".eml", media: "message/rfc822", size: r.Size(), body: r.All(), Closer: r}, nil
}

func (a *API) keptFile(ctx context.Context, p account.Principal, in *keptFileInput) (*file, error) {
	k, err := a.kept(ctx, p, &in.keptInput)
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(in.N)
	if err != nil || strconv.Itoa(n) != in.N {
		return nil, errNotFound
	}
	index, r, err := a.Folders.OpenParts(ctx, k.ID)
	if err != nil {
		return nil, gone(err)
	}
	f, body, ok, err := digest.Open(r, index, n)
	if err == nil && !ok {
		err = errNotFound
	}
	if err != nil {
		_ = r.Close() // only read
		return nil, err
	}
	name := f.Filename
	if name == "" {
		name = fmt.Sprintf("attachment-%d", n)
	}
	return &file{name: name, media: mediaType(f.ContentType), size: -1, body: body, Closer: r}, nil
}

func (a *API) messageURL(k folder.Kept) string {
	return a.Base + "/api/v1/mailboxes/" + k.Mailbox.String() + "/messages/" + k.ID.String()
}

func (a *API) showKept(k folder.Kept) KeptFields {
	out := KeptFields{
		ID: k.ID, MailboxID: k.Mailbox, ThreadID: optional(k.Thread), Size: k.Size, Folders: []placeAnswer{},
		Verdicts: digest.ParseVerdicts(k.Verdicts), RawURL: a.messageURL(k) + "/raw",
	}
	if k.Outbound != 0 {
		out.OutboundID = &k.Outbound
	}
	for i, at := range k.Places {
		out.Folders = append(out.Folders, placeAnswer{at.Folder, at.UID, flagNames(at)})
		if i == 0 || at.Date.Before(out.ReceivedAt) {
			out.ReceivedAt = stamp(at.Date)
		}
	}
	return out
}

// flagNames names flags as IMAP does.
func flagNames(at folder.Place) []string {
	names := []string{}
	for _, f := range []struct {
		flag folder.Flags
		name string
	}{{folder.Seen, `\Seen`}, {folder.Answered, `\Answered`}, {folder.Flagged, `\Flagged`}, {folder.Deleted, `\Deleted`}, {folder.Draft, `\Draft`}} {
		if at.Flags&f.flag != 0 {
			names = append(names, f.name)
		}
	}
	return append(names, at.Keywords...)
}
