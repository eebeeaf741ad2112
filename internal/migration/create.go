// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// Limits of a source's fields, in bytes, and of the number of chosen folders.
const (
	maxHost    = 253
	maxText    = 1000
	maxFolders = 1000
)

var insertQuery = db.SQL(`INSERT INTO migration (id, account, domain, mailbox, host, port, tls, username, password, insecure, selected_folders, source,
			state, error, lease, due_at, retries, planned, folders, folders_done, messages, messages_done, copied, skipped, failed,
			bytes, bytes_copied, run_at, run_messages, run_bytes, created_at, started_at, finished_at, updated_at)
		SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, 'queued', '', NULL, $13, 0, FALSE, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, $13, 0, 0, $13
		WHERE (SELECT COUNT(*) FROM migration WHERE account = $2 AND state IN ('queued', 'running')) < $14`)

// Target is the destination mailbox.
type Target struct{ Account, Domain, Mailbox db.ID }

// Check validates a source, fills in defaults, and returns all errors by API field.
func (s *Source) Check() fault.FieldErrors {
	var bad fault.FieldErrors
	s.checkHost(&bad)
	switch s.TLS {
	case "":
		s.TLS = ImplicitTLS
	case ImplicitTLS, StartTLS, NoTLS:
	default:
		bad.Add("source.tls", "unknown_value", "Give implicit, starttls or none.")
	}
	if s.Port == 0 {
		s.Port = 143
		if s.TLS == ImplicitTLS {
			s.Port = 993
		}
	}
	if s.Port < 1 || s.Port > 65535 {
		bad.Add("source.port", "out_of_range", "A port is a number from 1 to 65535.")
	}
	for _, text := range []struct{ field, value, what string }{
		{"source.username", s.Username, "The user name at the source"}, {"source.password", s.Password, "The password at the source"},
	} {
		switch {
		case text.value == "":
			bad.Add(text.field, "required", "%s is needed.", text.what)
		case len(text.value) > maxText || !isPlainText(text.value):
			bad.Add(text.field, "invalid_text", "%s has at most %d bytes of UTF-8, without control characters.", text.what, maxText)
		}
	}
	if len(s.Folders) > maxFolders {
		bad.Add("source.folders", "too_many", "Name at most %d folders.", maxFolders)
	}
	for _, f := range s.Folders {
		if f == "" || len(f) > maxText || !isPlainText(f) {
			bad.Add("source.folders", "invalid_text", "A folder's name has 1 to %d bytes of UTF-8, without control characters.", maxText)
			break
		}
	}
	return bad
}

func (s *Source) checkHost(bad *fault.FieldErrors) {
	if s.Host == "" {
		bad.Add("source.host", "required", "The host name of the source is needed.")
		return
	}
	if ip, err := netip.ParseAddr(strings.Trim(s.Host, "[]")); err == nil && ip.Zone() == "" {
		s.Host = ip.String()
		return
	}
	name, err := address.ParseHostname(strings.TrimSuffix(s.Host, "."))
	if err != nil || len(name) > maxHost {
		bad.Add("source.host", "invalid_host", "Give a host name such as imap.example.com.")
		return
	}
	s.Host = name
}

func isPlainText(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// Create starts copying into a mailbox. Check returns the errors of an invalid source. Too many
// unfinished migrations are a fault.Conflict.
func (m *Service) Create(ctx context.Context, to Target, from Source) (Migration, error) {
	if err := from.Check().Err(); err != nil {
		return Migration{}, err
	}
	chosen := []byte("")
	if len(from.Folders) > 0 {
		slices.Sort(from.Folders)
		chosen, _ = json.Marshal(slices.Compact(from.Folders)) // can't fail for strings
	}
	id, now := m.options.DB.NewID(), db.Micros(m.options.Now())
	err := m.options.DB.Tx(ctx, func(tx *db.Tx) error {
		if err := tx.Lock(ctx, "migrations", to.Account); err != nil {
			return err
		}
		tx.AfterCommit(func() { m.wake(0) })
		return tx.ExecOrFail(ctx, insertQuery.With(id, to.Account, to.Domain, to.Mailbox, from.Host, from.Port, from.TLS, from.Username,
			m.options.Key.Seal(sealPurpose, []byte(from.Password)), from.Insecure, string(chosen), from.accountHash(), now, maxUnfinished),
			fault.New(fault.Conflict, "too_many_migrations", "An account can have %d unfinished migrations. Wait for one to end, or cancel one.", maxUnfinished))
	})
	if err != nil {
		return Migration{}, err
	}
	return m.Get(ctx, to.Account, id)
}
