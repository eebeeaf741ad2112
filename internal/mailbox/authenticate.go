// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"
	"net/netip"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// Several mailboxes may have one address: when its domain changed hands, the
// former holder still reads its mail. At most so many are tried.
const maxNamesakes = 3

var byAddress = db.SQL(`SELECT m.id, m.account, m.domain, m.local_part, m.address, m.display_name, m.status, m.quota,
		u.bytes, u.messages, m.created_at, m.deleted_at, m.generation, m.password
	FROM mailbox m JOIN mailbox_usage u ON u.mailbox = m.id
	WHERE m.address = $1 AND m.deleted_at = 0 ORDER BY m.id DESC LIMIT 3`)

type login struct {
	Mailbox
	phc string
}

// Authenticate finds the mailbox that signs in with its address and password.
// Wrong ones are fault.Unknown, and take as long whether or not the address
// exists; too many of them are fault.Limited; what is suspended is
// fault.Denied. It delays its answer after failures, at most 4 s.
func (m *Mailboxes) Authenticate(ctx context.Context, user, password string, from netip.Addr) (Mailbox, error) {
	key := ""
	if a, err := address.Parse(user); err == nil {
		key = a.Key()
	}
	wait, err := m.Guesses.Check(key, from)
	if err != nil {
		return Mailbox{}, err
	}
	if err := m.pause(ctx, wait); err != nil {
		return Mailbox{}, err
	}
	box, ok, err := m.verify(ctx, key, password)
	if err != nil {
		return Mailbox{}, err
	}
	if !ok {
		m.Guesses.Failed(key, from, password)
		return Mailbox{}, fault.New(fault.Unknown, "invalid_credentials", "The address or the password is wrong.")
	}
	m.Guesses.Succeeded(key, from)
	owner, err := m.Accounts.Get(ctx, box.Account)
	if err != nil {
		return Mailbox{}, err
	}
	if box.Status != Active || owner.Status != "active" {
		return Mailbox{}, fault.New(fault.Denied, "mailbox_suspended", "This mailbox is suspended.")
	}
	return box, nil
}

func (m *Mailboxes) verify(ctx context.Context, key, password string) (Mailbox, bool, error) {
	var found []login
	if key != "" {
		var err error
		found, err = db.All(ctx, m.db, byAddress.With(key), scanLogin)
		if err != nil {
			return Mailbox{}, false, err
		}
	}
	if len(found) == 0 {
		return Mailbox{}, false, m.Hasher.Dummy(ctx, password)
	}
	for _, l := range found[:min(len(found), maxNamesakes)] {
		ok, err := m.cache.Verify(ctx, int64(l.ID), l.generation, l.phc, password)
		if ok || err != nil {
			return l.Mailbox, ok, err
		}
	}
	return Mailbox{}, false, nil
}

func scanLogin(r db.Row) (l login, err error) {
	l.Mailbox, err = scan(more{r, &l.phc})
	return l, err
}

// more scans one more column after those that the caller asks for.
type more struct {
	db.Row
	last any
}

func (r more) Scan(dst ...any) error { return r.Row.Scan(append(dst, r.last)...) }

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
