// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/credential"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/secret"
)

// CreateParams are the parameters of a new mailbox.
type CreateParams struct {
	Domain      db.ID
	LocalPart   string
	Password    *string // nil: generate one
	DisplayName string
	QuotaMB     *int // nil: DefaultQuotaMB
}

// Check validates the parameters without looking anything up.
func (n CreateParams) Check() error { return n.faults().Err() }

func (n CreateParams) faults() (bad fault.FieldErrors) {
	checkLocalPart(&bad, n.LocalPart)
	if n.Password != nil {
		bad = append(bad, credential.CheckNewPassword("password", *n.Password)...)
	}
	checkDisplayName(&bad, n.DisplayName)
	return bad
}

// DefaultQuotaMB is the quota of a mailbox if none is given.
const DefaultQuotaMB = 1024

const maxDisplayName = 200 // bytes

// CreatedEvent is the data of a mailbox_created event.
type CreatedEvent struct {
	Mailbox     db.ID  `json:"mailbox_id" doc:"The mailbox's id."`
	Domain      db.ID  `json:"domain_id" doc:"Its domain's id."`
	Address     string `json:"address" doc:"Its address." example:"ann@example.com"`
	DisplayName string `json:"display_name" doc:"The person's name." example:"Ann Lee"`
}

var (
	insertMailboxQuery = db.SQL(`INSERT INTO mailbox (id, account, domain, local_part, address, display_name, password, scram_of, scram, generation, quota, status, created_at, deleted_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $7, $8, 1, $9, 'active', $10, 0)`)
	insertUsageQuery = db.SQL(`INSERT INTO mailbox_usage (mailbox, bytes, messages, over_since) VALUES ($1, 0, 0, 0)`)
)

func addressTakenError() error {
	return fault.New(fault.Conflict, "address_taken", "There is a mailbox or an alias with this address already.")
}

// Create creates a mailbox with its folders under a domain that the account owns. If it generated
// the password, it returns it; it can't be retrieved later. An address in use is a fault.Conflict,
// and so is a quota above the account's remaining quota.
func (m *Mailboxes) Create(ctx context.Context, account db.ID, n CreateParams) (Mailbox, string, error) {
	quota := DefaultQuotaMB
	if n.QuotaMB != nil {
		quota = *n.QuotaMB
	}
	bad := n.faults()
	m.validateQuotaMB(&bad, quota)
	if err := bad.Err(); err != nil {
		return Mailbox{}, "", err
	}
	name, err := m.VerifiedName(ctx, account, n.Domain)
	if err != nil {
		return Mailbox{}, "", err
	}
	addr, err := address.Parse(n.LocalPart + "@" + name)
	if err != nil {
		bad.Add("local_part", "too_long", "The whole address may have %d bytes.", address.MaxAddress)
		return Mailbox{}, "", bad.Err()
	}
	password, made, stored, err := m.hashPassword(ctx, account, addr.String(), n.Password)
	if err != nil {
		return Mailbox{}, "", err
	}
	box := Mailbox{ID: m.db.NewID(), Account: account, Domain: n.Domain, Address: addr.String(), DisplayName: n.DisplayName,
		Status: StatusActive, Quota: int64(quota) << 20, KeepCopy: true, SpamFilter: SpamNormal, CreatedAt: m.now().UTC(), foldedAddress: addr.Key(), generation: 1}
	limit, err := m.storageLimit(ctx, account)
	if err != nil {
		return Mailbox{}, "", err
	}
	err = m.db.Tx(ctx, func(tx *db.Tx) error {
		if err := m.withinStorageLimit(ctx, tx, account, box.ID, limit, func() error {
			return tx.Run(ctx, insertMailboxQuery.With(box.ID, account, box.Domain, addr.Local, addr.Key(), box.DisplayName,
				stored.phc, stored.scram, box.Quota, db.Micros(box.CreatedAt)))
		}); err != nil {
			return err
		}
		if err := m.checkNoAlias(ctx, tx, box.ID); err != nil {
			return err
		}
		if err := writePieces(ctx, tx, account, box.ID, nil, box.searchPieces()); err != nil {
			return err
		}
		if err := tx.Run(ctx, insertUsageQuery.With(box.ID)); err != nil {
			return err
		}
		if err := m.CreateFolders(ctx, tx, box.ID); err != nil {
			return err
		}
		return m.Events.Record(ctx, tx, event.RecordParams{Account: account, Kind: event.MailboxCreated, Domain: box.Domain, Mailbox: box.ID,
			Data: CreatedEvent{Mailbox: box.ID, Domain: box.Domain, Address: box.Address, DisplayName: box.DisplayName}})
	})
	if m.db.IsConflict(err) {
		return Mailbox{}, "", addressTakenError()
	}
	if err != nil {
		return Mailbox{}, "", err
	}
	m.notifyChanged(box.ID)
	if !made {
		password = ""
	}
	return box, password, nil
}

// passwordVerifiers is the stored form of a password.
type passwordVerifiers struct{ phc, scram string }

// hashPassword hashes the given password of an address, or one that it generates.
func (m *Mailboxes) hashPassword(ctx context.Context, account db.ID, addr string, given *string) (password string, made bool, s passwordVerifiers, err error) {
	if given != nil {
		password = *given
	} else {
		password, made = secret.NewPassword(), true
	}
	by := accountRequester(account)
	if s.phc, err = m.Hasher.Hash(ctx, by, password); err == nil {
		s.scram, err = m.SCRAM.Verifiers(ctx, by, addr, password)
	}
	return password, made, s, err
}

// accountRequester identifies an account that has new passwords hashed, for all its users and keys.
func accountRequester(account db.ID) credential.Requester {
	return credential.Requester{Target: "account " + account.String()}
}

func checkLocalPart(bad *fault.FieldErrors, local string) {
	var why *fault.Error
	if err := address.CheckLocalPart(local); errors.As(err, &why) {
		bad.Add("local_part", why.Code, "%s", why.Message)
	}
}

func checkDisplayName(bad *fault.FieldErrors, name string) {
	if len(name) > maxDisplayName || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		bad.Add("display_name", "invalid_display_name", "Give at most %d bytes of text in one line.", maxDisplayName)
	}
}

func (m *Mailboxes) validateQuotaMB(bad *fault.FieldErrors, mb int) {
	if mb < 1 || mb > m.MaxQuotaMB {
		bad.Add("quota_mb", "out_of_range", "Give 1 to %d megabytes.", m.MaxQuotaMB)
	}
}
