// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"encoding/json"
	"io"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

// MessageInfo is what events say about a message.
type MessageInfo struct {
	Account   db.ID
	Domain    db.ID           // of its From; 0 if the message is gone
	API       bool            // mail of the API, whose failures may suppress; not of a mailbox
	Forwarded bool            // others wrote it: it came here, and goes on
	Private   bool            // the service wrote it: where it is filed here, only the mailbox's own protocols give its text
	MessageID string          // with angle brackets
	ThreadID  string          // "" if it has none
	Metadata  json.RawMessage // an object; nil for none
}

// OutboundMessage is a message ready to be sent. It is shared by all deliveries of the
// message and never changed.
type OutboundMessage struct {
	MessageInfo
	ID     db.ID
	Domain string // of its From, for logs

	// ReturnDomain, if set, is where API mail's signed return paths are; each
	// delivery then has a MAIL FROM of its own, and a transaction of its own.
	// Otherwise Sender is the MAIL FROM of all, "" for the null sender.
	ReturnDomain string
	Sender       string

	// Head is written before the body: the DKIM-Signature fields, with CRLF.
	Head []byte
	// Body opens the message's own bytes, with CRLF line ends.
	Body func(ctx context.Context) (io.ReadCloser, error)
	// Size is the length of Head and Body together, in octets.
	Size int64

	UTF8     bool // the headers need SMTPUTF8
	EightBit bool // the body has octets above 127
	// EncodeSevenBit, if set, returns the message in the form for a host without 8BITMIME: with its
	// parts re-encoded, and signed or sealed so (RFC 6152 §3). It is a fault.Denied if
	// something in it can't be encoded. Without it an EightBit message must stay as it is.
	SevenBit   func(ctx context.Context) (*OutboundMessage, error)
	RequireTLS bool // RFC 8689
	// OptionalTLS: no policy of the recipient's domain is to keep the message
	// from it ("TLS-Required: No", RFC 8689 §3).
	OptionalTLS bool
	// Notify, if not 0, is NOTIFY for every recipient, whatever was asked.
	Notify smtpclient.Notify
	Ret    string // RET of RFC 3461: "HDRS", "FULL" or ""
	EnvID  string // ENVID, not encoded
}
