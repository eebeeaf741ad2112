// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Person is somebody in an address field.
type Person struct {
	Name  string `json:"name"`
	Email string `json:"email"`
}

// HeaderField is one field of a message's header.
type HeaderField struct {
	Name  string `json:"name"`
	Value string `json:"value"` // on one line, decoded
}

// MessageFile is a file of a message.
type MessageFile struct {
	N           int    `json:"n"`        // its number in the message, 0 for the first
	Filename    string `json:"filename"` // without folders; "" if it has none
	ContentType string `json:"content_type"`
	Size        int64  `json:"size"`       // in bytes, decoded
	ContentID   string `json:"content_id"` // by which the HTML shows it, as cid:…
	Disposition string `json:"disposition"`
	URL         string `json:"url"` // "" for what is in the sandbox's outbox
}

// Verdicts say how an arriving message was judged: pass, fail, none and so on
// (RFC 8601); Spam is none, ham or spam.
type Verdicts struct {
	SPF   string `json:"spf,omitempty"`
	DKIM  string `json:"dkim,omitempty"`
	DMARC string `json:"dmarc,omitempty"`
	Spam  string `json:"spam,omitempty"`
	// Author is why the author can't be told, such as no_from or other_name; "" if
	// he can. It is the service's own finding.
	Author string `json:"author,omitempty"`
	// SpamScore is how many points speak for spam, SpamReasons what counted,
	// parted by spaces.
	SpamScore   float64 `json:"spam_score,omitempty"`
	SpamReasons string  `json:"spam_reasons,omitempty"`
}

// MessageSummary is what lists show of a message.
type MessageSummary struct {
	MessageID string     `json:"message_id"` // the header field; "" if it has none
	From      []Person   `json:"from"`       // of each at most 50
	To        []Person   `json:"to"`
	Cc        []Person   `json:"cc"`
	Subject   string     `json:"subject"`
	Date      *time.Time `json:"date"` // as its author says; nil if that can't be read
}

// MessageContent is what there is to read in a message. Each Truncated says
// that there is more than is shown.
type MessageContent struct {
	ReplyTo    []Person `json:"reply_to"`
	InReplyTo  string   `json:"in_reply_to"` // "" if it answers nothing
	References []string `json:"references"`  // the nearest last

	Headers          []HeaderField `json:"headers"` // in order
	HeadersTruncated bool          `json:"headers_truncated"`

	Text          *string `json:"text"` // UTF-8, with line feeds; nil if it has none
	TextTruncated bool    `json:"text_truncated"`
	HTML          *string `json:"html"` // as the sender wrote it: clean it before you show it
	HTMLTruncated bool    `json:"html_truncated"`

	Attachments          []MessageFile `json:"attachments"`
	AttachmentsTruncated bool          `json:"attachments_truncated"`
}

// Envelope is that of SMTP, whatever the header says.
type Envelope struct {
	MailFrom string   `json:"mail_from"` // "" is the null sender
	RcptTo   []string `json:"rcpt_to"`
}

// InboundData is the data of an event inbound_email.
type InboundData struct {
	ID       string   `json:"id"` // of the message, for GetMailboxMessage
	ThreadID string   `json:"thread_id"`
	Metadata struct{} `json:"metadata"` // always empty
	DomainID string   `json:"domain_id"`
	Mailbox  struct {
		ID      string `json:"id"`
		Address string `json:"address"`
	} `json:"mailbox"`
	Envelope Envelope `json:"envelope"`
	Tag      string   `json:"tag"`  // what stood after the plus in the address
	Size     int64    `json:"size"` // of the whole message, in bytes
	Verdicts Verdicts `json:"verdicts"`
	RawURL   string   `json:"raw_url"`
	MessageSummary
	MessageContent
	Gone    bool `json:"gone"`    // it was deleted before the event was first read
	Private bool `json:"private"` // the service wrote it to the mailbox's reader: mail programs alone show its text
}

// MailboxMessage is a message in a mailbox.
type MailboxMessage struct {
	ID         string          `json:"id"` // the same in whichever folder it is
	MailboxID  string          `json:"mailbox_id"`
	ThreadID   string          `json:"thread_id"`   // "" for what a mail program stored
	OutboundID string          `json:"outbound_id"` // the sent message that it is a copy of, if it came from here
	Size       int64           `json:"size"`        // of the whole message, in bytes
	Folders    []MessageFolder `json:"folders"`     // that show it
	Verdicts   Verdicts        `json:"verdicts"`
	ReceivedAt time.Time       `json:"received_at"`
	RawURL     string          `json:"raw_url"`
	MessageSummary
	MessageContent // of GetMailboxMessage alone
}

// MessageFolder is where a folder shows a message.
type MessageFolder struct {
	Folder string   `json:"folder"`
	UID    uint32   `json:"uid"`
	Flags  []string `json:"flags"` // as IMAP has them: \Seen
}

// MailFilter says which messages of a mailbox are wanted; the zero value is
// all.
type MailFilter struct {
	Folder  string    // only what this folder shows
	Since   time.Time // only what came then or later
	From    string    // only messages by this author, or by any author of this domain
	Subject string    // only messages whose subject contains this
}

func (f MailFilter) query() url.Values {
	q := url.Values{}
	set(q, "folder", f.Folder)
	set(q, "from", f.From)
	set(q, "subject", f.Subject)
	if !f.Since.IsZero() {
		q.Set("since", f.Since.Format(time.RFC3339Nano))
	}
	return q
}

// ListMailboxMessages returns a page of the messages in a mailbox, the last to
// come first, without their content. A page may be short although the list goes
// on.
func (c *Client) ListMailboxMessages(ctx context.Context, mailbox string, f MailFilter, p Paging) (*Page[MailboxMessage], error) {
	return do[Page[MailboxMessage]](ctx, c, call{method: http.MethodGet, path: "/mailboxes/{id}/messages", id: mailbox, query: p.into(f.query())})
}

// MailboxMessages walks through all messages that fit, the last to come first.
// After an error it ends.
func (c *Client) MailboxMessages(ctx context.Context, mailbox string, f MailFilter) iter.Seq2[MailboxMessage, error] {
	return walk(func(p Paging) (*Page[MailboxMessage], error) { return c.ListMailboxMessages(ctx, mailbox, f, p) })
}

// GetMailboxMessage shows a message in a mailbox. That doesn't mark it as read.
func (c *Client) GetMailboxMessage(ctx context.Context, mailbox, id string) (*MailboxMessage, error) {
	path, err := messagePath(id)
	if err != nil {
		return nil, err
	}
	return do[MailboxMessage](ctx, c, call{method: http.MethodGet, path: path, id: mailbox})
}

// GetMailboxMessageRaw writes the bytes of a message. After an error they are
// not whole.
func (c *Client) GetMailboxMessageRaw(ctx context.Context, mailbox, id string, to io.Writer) error {
	path, err := messagePath(id)
	if err != nil {
		return err
	}
	return c.run(ctx, call{method: http.MethodGet, path: path + "/raw", id: mailbox, into: to})
}

// GetMailboxMessageAttachment writes the n-th file of a message, decoded. After
// an error it is not whole.
func (c *Client) GetMailboxMessageAttachment(ctx context.Context, mailbox, id string, n int, to io.Writer) error {
	path, err := messagePath(id)
	if err != nil {
		return err
	}
	return c.run(ctx, call{method: http.MethodGet, path: path + "/attachments/" + strconv.Itoa(n), id: mailbox, into: to})
}

func messagePath(id string) (string, error) {
	if id == "" || id == "." || id == ".." {
		return "", errors.New("mailstead: the id of the message is missing")
	}
	return "/mailboxes/{id}/messages/" + url.PathEscape(id), nil
}
