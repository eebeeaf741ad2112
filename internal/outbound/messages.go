// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"context"
	"encoding/json"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/outbound/index"
	"github.com/mailstead/mailstead/internal/secret"
	"github.com/mailstead/mailstead/internal/tag"
)

// Messages reads stored outbound messages, and signs them for the queue. It doesn't need the queue.
type Messages struct {
	DB       *db.DB
	Blobs    *blob.Store
	Accounts *account.Accounts
	Domains  *domain.Domains
	Key      *secret.Key
	Host     string // the service's own name; domains without return paths of their own use bounces.HOST
	Now      func() time.Time
	// SignSlots limits, by its capacity, how many messages are signed at the same time, so that
	// sending a backlog doesn't take CPU time from accepting mail; nil: no limit. ExtraSignSlots
	// are additional slots for times when accepting isn't busy.
	SignSlots, ExtraSignSlots chan struct{}
	// Accepting is the load of accepting messages; signing and indexing yield to it.
	Accepting notify.LoadGauge
}

// Message is an outbound message as its account sees it.
type Message = index.Message

// row is an outbound message as stored.
type row struct {
	id, account, domain, mailbox, blob db.ID
	sender, returnPathHost             string
	from, subject, messageID, thread   string
	metadata                           string
	tags                               string // as tag.Join returns them
	ret, envid                         string // from a submission (RFC 3461)
	requireTLS                         string // from a submission (RFC 8689): tlsRequired, tlsOptional or ""
	reference                          int64  // see setReference; write only
	onlyDomain                         db.ID  // the only domain whose messages it may answer; 0: any; not stored
	addedFields                        []byte // fields to add to a submission; not stored
	template                           db.ID  // template it was made from; 0 for none
	forwarder                          db.ID  // the alias through which it came; 0: sent from here
	private                            bool   // only the recipient may read it
	templateVersion                    int
	utf8, eightBit                     bool
	size                               int64
	expires, created                   time.Time
}

// rowColumns are the columns that a row is scanned from.
const rowColumns = `id, account, domain, mailbox, sender, returns_to, header_from, subject, message_id,
			thread_id, metadata, utf8, eight_bit, size, blob, expires_at, created_at, ret, envid, template, template_version, require_tls, forwarded, private, tags`

var (
	insertMessageQuery = db.SQL(`INSERT INTO outbound_message (id, account, domain, mailbox, sender, returns_to, header_from, subject, message_id,
			thread_id, metadata, utf8, eight_bit, size, blob, expires_at, created_at, ret, envid, reference, template, template_version, require_tls, forwarded, private, tags)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26)`)
	messageByIDQuery = db.SQL(`SELECT ` + rowColumns + ` FROM outbound_message WHERE id = $1`)
	rowsByIDQuery    = db.SQL(`SELECT ` + rowColumns + ` FROM outbound_message
		WHERE id IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)`)
)

func (r *row) insertStatement() db.Statement {
	return insertMessageQuery.With(r.id, r.account, r.domain, r.mailbox, r.sender, r.returnPathHost, r.from, r.subject, r.messageID,
		r.thread, r.metadata, r.utf8, r.eightBit, r.size, r.blob, db.Micros(r.expires), db.Micros(r.created), r.ret, r.envid, r.reference,
		r.template, r.templateVersion, r.requireTLS, r.forwarder, r.private, r.tags)
}

func scanMessage(r db.Row) (*row, error) {
	m := &row{}
	return m, r.Scan(&m.id, &m.account, &m.domain, &m.mailbox, &m.sender, &m.returnPathHost, &m.from, &m.subject, &m.messageID,
		&m.thread, &m.metadata, &m.utf8, &m.eightBit, &m.size, &m.blob, db.TimeScanner(&m.expires), db.TimeScanner(&m.created), &m.ret, &m.envid,
		&m.template, &m.templateVersion, &m.requireTLS, &m.forwarder, &m.private, &m.tags)
}

// toMessage returns the message without its deliveries.
func (r *row) toMessage() Message {
	return Message{
		ID: r.id, Account: r.account, Domain: r.domain, Mailbox: r.mailbox, From: r.from, Subject: r.subject, MessageID: r.messageID, ThreadID: r.thread,
		Metadata: json.RawMessage(r.metadata), Tags: tag.Split(r.tags), Size: r.size, CreatedAt: r.created,
		Template: r.template, TemplateVersion: r.templateVersion, Forwarded: r.forwarder != 0,
	}
}

func (o *Messages) loadRow(ctx context.Context, id db.ID) (*row, error) {
	return db.Find(ctx, o.DB, messageByIDQuery.With(id), notFoundError(), scanMessage)
}

func notFoundError() error {
	return fault.New(fault.NotFound, "message_gone", "The message is no longer there.")
}

func (o *Messages) loadOwned(ctx context.Context, account, id db.ID) (*row, error) {
	none := fault.New(fault.NotFound, "not_found", "There is no message with this id.")
	r, err := db.Find(ctx, o.DB, messageByIDQuery.With(id), none, scanMessage)
	if err == nil && r.account != account {
		err = none
	}
	return r, err
}

// AcceptLoad returns the share of time, 0 to 1, that this node spends accepting messages.
func (o *Messages) AcceptLoad() float64 { return o.Accepting.Load(o.Now()) }

// Load reads at most index.BatchSize messages without their deliveries, in no particular order.
func (o *Messages) Load(ctx context.Context, ids []db.ID) ([]Message, error) {
	rows, err := o.loadRows(ctx, ids)
	return toMessages(rows), err
}

func toMessages(rows []*row) []Message {
	list := make([]Message, len(rows))
	for i, r := range rows {
		list[i] = r.toMessage()
	}
	return list
}

// loadRows reads at most index.BatchSize messages, in no particular order.
func (o *Messages) loadRows(ctx context.Context, ids []db.ID) ([]*row, error) {
	args := make([]any, index.BatchSize)
	for i := range args {
		args[i] = 0
		if i < len(ids) {
			args[i] = ids[i]
		}
	}
	return db.All(ctx, o.DB, rowsByIDQuery.With(args...), scanMessage)
}
