// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/folder/search"
	"github.com/mailstead/mailstead/internal/summary"
	"github.com/mailstead/mailstead/internal/web"
)

// MailboxMessageFields are the fields common to all responses about a message in a mailbox. It is
// exported for the OpenAPI document.
type MailboxMessageFields struct {
	ID           db.ID                   `json:"id" doc:"The message's id: the same in whichever folder it is, until it is in none. It is the id in the data of its inbound_email event."`
	MailboxID    db.ID                   `json:"mailbox_id" doc:"The mailbox."`
	ThreadID     *string                 `json:"thread_id" doc:"The thread it belongs to; null for what a mail program stored."`
	OutboundID   *db.ID                  `json:"outbound_id" doc:"The sent message that this is a copy of, if it came from a mailbox or an application here."`
	Size         int64                   `json:"size" doc:"Of the whole message, in bytes." example:"4711"`
	Folders      []messageFolderResponse `json:"folders" doc:"The folders that show it, at most 20."`
	CheckResults summary.CheckResults    `json:"check_results" doc:"How it was judged when it arrived."`
	ReceivedAt   time.Time               `json:"received_at" doc:"When it came, as mail programs see it."`
	RawURL       string                  `json:"raw_url" doc:"Where the whole message can be had, with your API key."`
}

type mailboxMessageSummaryResponse struct {
	MailboxMessageFields
	summary.Summary
}

type mailboxMessageResponse struct {
	MailboxMessageFields
	summary.Summary
	summary.Content
}

type messageFolderResponse struct {
	Folder string   `json:"folder" doc:"The folder's name, with / between levels." example:"INBOX"`
	UID    uint32   `json:"uid" doc:"The message's UID there." example:"7"`
	Flags  []string `json:"flags" doc:"Its flags and keywords there." example:"\\Seen"`
}

type mailboxMessageInput struct {
	ID        string `path:"id" format:"uuid" doc:"The mailbox's id."`
	MessageID string `path:"message" format:"uuid" doc:"The message's id."`
}

type mailboxAttachmentInput struct {
	mailboxMessageInput
	N string `path:"n" doc:"The file's number in the message's attachments."`
}

type listMailboxMessagesInput struct {
	idParams
	pageParams
	mailFilterParams
}

type exportMailboxMessagesInput struct {
	idParams
	exportOrderParams
	mailFilterParams
}

func (a *API) exportMailboxMessages(ctx context.Context, p account.Principal, in *exportMailboxMessagesInput, after string) (listResponse[mailboxMessageSummaryResponse], error) {
	return a.listMailboxMessages(ctx, p, &listMailboxMessagesInput{in.idParams, in.page(after), in.mailFilterParams})
}

// mailFilterParams selects messages in a mailbox.
type mailFilterParams struct {
	Folder        string `query:"folder" doc:"Only what this folder shows. A name below another has a / between them." example:"INBOX"`
	ReceivedAfter string `query:"received_after" format:"date-time" doc:"Only what came to the mailbox at this time or later." example:"2026-01-31T00:00:00Z"`
	From          string `query:"from" doc:"Only messages by this author, in any case, or by any author of this domain." example:"bob@example.org"`
	Subject       string `query:"subject" doc:"Only messages whose subject contains this, in any case." example:"order"`
}

// mailReadScope is the scope for message content. Responses to a key without it leave the content
// out.
const mailReadScope = "mail.read"

func (a *API) mailRoutes(r *router) {
	const scope = mailReadScope
	handle(r, operation{method: "GET", path: "/mailboxes/{id}/messages", id: "listMailboxMessages", scope: scope,
		summary: "List the messages in a mailbox", description: "In all folders, the last to come first. All that is asked for must hold. " +
			"A page may be short, or empty, although `has_more` is true, when few of many messages are right: go on with the cursor."}, a.listMailboxMessages)
	handleExport(r, operation{path: "/mailboxes/{id}/messages/export", id: "exportMailboxMessages", scope: scope,
		summary: "Export the list of messages in a mailbox", description: "All that the list has, by the same filters. The messages themselves are exported by `/mailboxes/{id}/export`."}, a.exportMailboxMessages)
	handle(r, operation{method: "GET", path: "/mailboxes/{id}/messages/{message}", id: "getMailboxMessage", scope: scope,
		summary: "Show a message in a mailbox", description: "Its header, its texts and a list of its files, as in the `inbound_email` event. " +
			"Reading it here doesn't mark it as read. What the service itself wrote to whoever reads the mailbox is a 403 with the code `service_message`."}, a.getMailboxMessage)
	handleFile(r, operation{method: "GET", path: "/mailboxes/{id}/messages/{message}/raw", id: "getMailboxMessageRaw", scope: scope, responseMedia: "message/rfc822",
		summary: "The whole message as it is stored", description: "All of its bytes, with the trace fields that were put on top (RFC 5322)."}, a.getMailboxMessageRaw)
	handleFile(r, operation{method: "GET", path: "/mailboxes/{id}/messages/{message}/attachments/{n}", id: "getMailboxMessageAttachment", scope: scope, responseMedia: "*/*",
		summary: "A file of a message", description: "Decoded. It is always offered for download, and where a browser could run what is in it the type is " +
			"application/octet-stream; `content_type` tells what the sender claims."}, a.getMailboxMessageAttachment)
}

// existingMailboxID returns the id of a mailbox whose messages the principal may see.
func (a *API) existingMailboxID(ctx context.Context, p account.Principal, id string) (db.ID, error) {
	box, err := a.mailboxID(ctx, p, &idParams{id})
	if err == nil {
		_, err = a.Mailboxes.Get(ctx, p.Account, box)
	}
	return box, err
}

// mailboxMessage returns the message that the path names.
func (a *API) mailboxMessage(ctx context.Context, p account.Principal, in *mailboxMessageInput) (folder.StoredMessage, error) {
	box, err := a.existingMailboxID(ctx, p, in.ID)
	if err != nil {
		return folder.StoredMessage{}, err
	}
	id, err := db.ParseID(in.MessageID)
	if err != nil {
		return folder.StoredMessage{}, err
	}
	return a.Folders.Message(ctx, box, id)
}

func (a *API) listMailboxMessages(ctx context.Context, p account.Principal, in *listMailboxMessagesInput) (listResponse[mailboxMessageSummaryResponse], error) {
	none := listResponse[mailboxMessageSummaryResponse]{Data: []mailboxMessageSummaryResponse{}}
	box, err := a.existingMailboxID(ctx, p, in.ID)
	if err != nil {
		return none, err
	}
	var bad fault.FieldErrors
	at, err := in.dbPage(func(id db.ID) (bool, error) {
		_, err := a.Folders.Message(ctx, box, id)
		return err == nil, notFoundAsNil(err)
	})
	if err := mergeFaults(&bad, err); err != nil {
		return none, err
	}
	f := search.MessageFilter{Folder: in.Folder, From: in.From, Subject: in.Subject}
	if in.ReceivedAfter != "" {
		if f.Since, err = time.Parse(time.RFC3339, in.ReceivedAfter); err != nil {
			bad.Add("received_after", "invalid_time", "Give a time such as 2026-01-31T09:00:00Z (RFC 3339).")
		}
	}
	if err := mergeFaults(&bad, f.Check()); err != nil {
		return none, err
	}
	if err := bad.Err(); err != nil {
		return none, err
	}
	found, more, next, err := a.Searcher.ListMessages(ctx, box, f, at)
	if err != nil {
		return none, notFoundAsFieldFault(err, "folder", "There is no such folder in this mailbox.")
	}
	show := func(k folder.StoredMessage) mailboxMessageSummaryResponse {
		return mailboxMessageSummaryResponse{a.newMailboxMessageFields(k), k.Summary}
	}
	return newListResponse(&in.pageParams, at, found, more, next, show), nil
}

func (a *API) getMailboxMessage(ctx context.Context, p account.Principal, in *mailboxMessageInput) (mailboxMessageResponse, error) {
	k, err := a.mailboxMessage(ctx, p, in)
	if err != nil {
		return mailboxMessageResponse{}, err
	}
	index, r, err := a.Folders.OpenParts(ctx, k.ID)
	if err != nil {
		return mailboxMessageResponse{}, expungedAsNotFound(err)
	}
	defer r.Close() //nolint:errcheck // only read
	out := mailboxMessageResponse{MailboxMessageFields: a.newMailboxMessageFields(k)}
	if out.Summary, out.Content, err = summary.Read(r, index); err != nil {
		return mailboxMessageResponse{}, err
	}
	out.SetURLs(a.mailboxMessageURL(k))
	return out, nil
}

// expungedAsNotFound turns the fault of an expunged message into a not-found fault.
func expungedAsNotFound(err error) error {
	if fault.Is(err, fault.NotFound) {
		return errNotFound
	}
	return err
}

func (a *API) getMailboxMessageRaw(ctx context.Context, p account.Principal, in *mailboxMessageInput) (*web.FileResponse, error) {
	k, err := a.mailboxMessage(ctx, p, in)
	if err != nil {
		return nil, err
	}
	r, err := a.Folders.OpenMessage(ctx, k.ID)
	if err != nil {
		return nil, expungedAsNotFound(err)
	}
	return web.RawFile(k.ID.String(), r), nil
}

func (a *API) getMailboxMessageAttachment(ctx context.Context, p account.Principal, in *mailboxAttachmentInput) (*web.FileResponse, error) {
	k, err := a.mailboxMessage(ctx, p, &in.mailboxMessageInput)
	if err != nil {
		return nil, err
	}
	index, r, err := a.Folders.OpenParts(ctx, k.ID)
	if err != nil {
		return nil, expungedAsNotFound(err)
	}
	f, err := web.AttachmentFile(index, r, in.N)
	if err == nil && f == nil {
		err = errNotFound
	}
	return f, err
}

func (a *API) mailboxMessageURL(k folder.StoredMessage) string {
	return a.BaseURL + "/api/v1/mailboxes/" + k.Mailbox.String() + "/messages/" + k.ID.String()
}

func (a *API) newMailboxMessageFields(k folder.StoredMessage) MailboxMessageFields {
	out := MailboxMessageFields{
		ID: k.ID, MailboxID: k.Mailbox, ThreadID: optionalString(k.Thread), Size: k.Size, Folders: []messageFolderResponse{},
		CheckResults: summary.ParseCheckResults(k.CheckResults), RawURL: a.mailboxMessageURL(k) + "/raw",
	}
	if k.Outbound != 0 {
		out.OutboundID = &k.Outbound
	}
	for i, at := range k.Locations {
		out.Folders = append(out.Folders, messageFolderResponse{at.Folder, at.UID, flagNames(at)})
		if i == 0 || at.Date.Before(out.ReceivedAt) {
			out.ReceivedAt = utcTime(at.Date)
		}
	}
	return out
}

// flagNames returns the flags under their IMAP names.
func flagNames(at folder.Location) []string {
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
