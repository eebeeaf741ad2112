// SPDX-License-Identifier: Apache-2.0

package db_test

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
)

// The two most frequent writes, without the packages that own their tables.
var (
	benchBlob = db.SQL(`INSERT INTO blob (id, size, file, bytes) VALUES ($1, $2, $3, $4)`)

	benchSent = db.SQL(`INSERT INTO outbound_message (id, account, domain, mailbox, sender, returns_to, header_from,
			subject, message_id, thread_id, metadata, utf8, eight_bit, size, blob, expires_at, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)`)
	benchDelivery = db.SQL(`INSERT INTO delivery (message, n, account, recipient, kind, destination, state, due_at,
			expires_at, lease, attempts, sequence, code, enhanced, reply, remote_host, updated_at)
		VALUES ($1, $2, $3, $4, 'to', $5, 'queued', $6, $7, $8, 0, 0, 0, '', '', '', $6)`)
	benchEvent = db.SQL(`INSERT INTO event (id, account, kind, message, data, created_at) VALUES ($1, $2, $3, $4, $5, $6)`)

	benchCapacity = db.SQL(`UPDATE mailbox_usage SET bytes = bytes + $2, messages = messages + 1 WHERE mailbox = $1 AND bytes + $2 <= $3`)
	benchNext     = db.SQL(`UPDATE folder SET uid_next = uid_next + 1, modseq = modseq + 1, messages = messages + 1, unseen = unseen + 1, bytes = bytes + $2 WHERE id = $1`)
	benchFolder   = db.SQL(`INSERT INTO folder_message (folder, uid, message, flags, keywords, modseq, size, internal_date, saved_at)
		SELECT $1, uid_next - 1, $2, 0, '', modseq, $3, $4, $4 FROM folder WHERE id = $1`)
	benchMessage = db.SQL(`INSERT INTO message (id, mailbox, blob, size, outbound, message_id, envelope, structure)
		VALUES ($1, $2, $3, $4, 0, $5, $6, $7)`)

	benchAccount = db.SQL(`INSERT INTO account (id, email, name, status, created_at) VALUES ($1, $2, '', 'active', 0)`)
	benchDomain  = db.SQL(`INSERT INTO domain (id, account, name, status, owned, token, receives, sends, aligned, records, checked_at,
			next_check_at, checks, mismatch_since, contested_since, verified_at, created_at)
		VALUES ($1, $2, 'bench.example', 'verified', $3, '', $3, $3, $3, '{}', 0, 0, 0, 0, 0, 0, 0)`)
	benchMailbox = db.SQL(`INSERT INTO mailbox (id, account, domain, local_part, address, display_name, password, generation, quota, status, created_at, deleted_at)
		VALUES ($1, $2, $3, $4, $4, '', '', 0, 1000000000, 'active', 0, 0)`)
	benchInbox = db.SQL(`INSERT INTO folder (id, mailbox, name, special_use, uidvalidity, uid_next, modseq, changed_modseq, messages, unseen, bytes, recent_uid, log_start_modseq)
		VALUES ($1, $2, 'INBOX', '', 1, 1, 1, 1, 0, 0, 0, 1, 0)`)
)

const benchSize = 4 << 10

// BenchmarkAccept writes what an API send writes: a message of 4 KiB, its
// delivery and an event, for 100 accounts.
func BenchmarkAccept(b *testing.B) {
	body := bytes.Repeat([]byte("x"), benchSize)
	data := `{"status":"queued","recipient":"someone@dest.example"}`
	bench(b, func(b *testing.B, d *db.DB) func(i int64) error {
		lease := d.NewID()
		return func(i int64) error {
			account, id, blob, event := db.ID(1000+i%100), d.NewID(), d.NewID(), d.NewID()
			at := db.Micros(id.Time())
			return d.Write(b.Context(), account, &db.Mutation{Apply: func(q *db.Batch) {
				q.Queue(benchBlob.With(blob, benchSize, 0, body))
				q.Queue(benchSent.With(id, account, 7, 0, "", "bounces.bench.example", "sender@bench.example", "A subject of usual length",
					"<0190-aaaa-bbbb@bench.example>", "thread", "{}", false, false, benchSize, blob, at+1, at))
				q.Queue(benchDelivery.With(id, 0, account, "someone@dest.example", "dest.example", at, at+1, lease))
				q.Queue(benchEvent.With(event, account, "delivery_status", id, data, at))
			}})
		}
	})
}

// BenchmarkFile writes what filing a message in one of 100 mailboxes writes: usage, UID, the
// folder's row, the message of 4 KiB and an event.
func BenchmarkFile(b *testing.B) {
	body, envelope := bytes.Repeat([]byte("x"), benchSize), bytes.Repeat([]byte("e"), 400)
	full := fmt.Errorf("full")
	bench(b, func(b *testing.B, d *db.DB) func(i int64) error {
		ctx := b.Context()
		account, domain := d.NewID(), d.NewID()
		var inboxes, mailboxes []db.ID
		if err := d.Tx(ctx, func(tx *db.Tx) error {
			inboxes, mailboxes = nil, nil
			add := []db.Statement{benchAccount.With(account, "bench"), benchDomain.With(domain, account, true)}
			for i := range 100 {
				mailbox, inbox := d.NewID(), d.NewID()
				inboxes, mailboxes = append(inboxes, inbox), append(mailboxes, mailbox)
				add = append(add, benchMailbox.With(mailbox, account, domain, fmt.Sprint(i)), addUsage.With(mailbox), benchInbox.With(inbox, mailbox))
			}
			for _, s := range add {
				if _, err := tx.Exec(ctx, s); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
		return func(i int64) error {
			mailbox, inbox := mailboxes[i%100], inboxes[i%100]
			blob, id, event := d.NewID(), d.NewID(), d.NewID()
			at := db.Micros(id.Time())
			return d.Write(ctx, mailbox, &db.Mutation{
				Guard: func(q *db.Batch) { q.Queue(benchCapacity.With(mailbox, benchSize, int64(1)<<40)).OrFail(full) },
				Apply: func(q *db.Batch) {
					q.Queue(benchNext.With(inbox, benchSize))
					q.Queue(benchFolder.With(inbox, id, benchSize, at))
					q.Queue(benchMessage.With(id, mailbox, blob, benchSize, "<0190-aaaa-bbbb@bench.example>", envelope, envelope))
					q.Queue(benchBlob.With(blob, benchSize, 0, body))
					q.Queue(benchEvent.With(event, account, "inbound_email", 0, "{}", at))
				},
			})
		}
	})
}

// BenchmarkOne reads a row by its key.
func BenchmarkOne(b *testing.B) {
	bench(b, func(b *testing.B, d *db.DB) func(i int64) error {
		id := d.NewID()
		if err := d.Write(b.Context(), id, &db.Mutation{Apply: func(q *db.Batch) { q.Queue(addAccount.With(id, "a", "A")) }}); err != nil {
			b.Fatal(err)
		}
		return func(int64) error {
			var name string
			return d.One(b.Context(), nameOf.With(id), &name)
		}
	})
}

// bench runs what start returns b.N times, by 1, 16 and 64 callers, on both
// engines.
func bench(b *testing.B, start func(b *testing.B, d *db.DB) func(i int64) error) {
	for _, engine := range []struct {
		name string
		url  func(testing.TB) string
	}{{"sqlite", dbtest.SQLite}, {"postgres", dbtest.Postgres}} {
		for _, callers := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("%s/%d", engine.name, callers), func(b *testing.B) {
				d := dbtest.Open(b, engine.url(b))
				do := start(b, d)
				b.ReportAllocs()
				b.ResetTimer()
				var next atomic.Int64
				var wg sync.WaitGroup
				for range callers {
					wg.Go(func() {
						for {
							i := next.Add(1)
							if i > int64(b.N) {
								return
							}
							if err := do(i); err != nil {
								b.Error(strings.TrimSpace(err.Error()))
								return
							}
						}
					})
				}
				wg.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
			})
		}
	}
}
