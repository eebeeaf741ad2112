// SPDX-License-Identifier: Apache-2.0

package fulltext

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/folder/search"
)

// lines returns lines of the project's documents. In random letters every message would have nearly
// every sequence of three.
func lines(t testing.TB) (all []string) {
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(files) == 0 {
		t.Fatal("there are no documents", err)
	}
	for _, file := range append(files, "../../ARCHITECTURE.md", "../../LICENSE") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); len(line) > 20 && len(line) < 900 {
				all = append(all, line)
			}
		}
	}
	return all
}

// benchMail is a message of 8 KiB; one in a hundred has the needle in its
// subject and body.
func benchMail(r *rand.Rand, lines []string, i int) string {
	var b strings.Builder
	needle := ""
	if i%100 == 0 {
		needle = "orchard"
	}
	fmt.Fprintf(&b, "From: Ann <ann@example.com>\r\nTo: bob@demo.test\r\nSubject: %.30s %s\r\nMessage-ID: <%d@example.com>\r\nReceived: from a by b; %s\r\n\r\n",
		lines[r.IntN(len(lines))], needle, i, time.Now())
	for b.Len() < 8<<10 {
		b.WriteString(lines[r.IntN(len(lines))] + "\r\n")
	}
	return b.String() + needle
}

const benchMessages = 10_000

// eachBench runs f on both engines, with a folder of messages of 8 KiB that are not indexed.
func eachBench(b *testing.B, f func(b *testing.B, h *fixture)) {
	for name, url := range map[string]func(testing.TB) string{"sqlite": dbtest.SQLite, "postgres": dbtest.Postgres} {
		b.Run(name, func(b *testing.B) {
			h := newFixture(b, url(b))
			r, text := rand.New(rand.NewPCG(5, 6)), lines(b)
			for i := 0; i < benchMessages; {
				var some []string
				for range 500 {
					some = append(some, benchMail(r, text, i))
					i++
				}
				h.append(h.box, folder.Inbox, some...)
			}
			f(b, h)
		})
	}
}

// BenchmarkFill measures the time and the file space to index a message.
func BenchmarkFill(b *testing.B) {
	eachBench(b, func(b *testing.B, h *fixture) {
		for b.Loop() {
			_, err := h.index.writer.ExecContext(h.ctx(), `UPDATE search_state SET upto = 0`)
			h.must(err)
			h.fill()
		}
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/benchMessages, "µs/msg")
		size := h.count(`SELECT (SELECT SUM(LENGTH(bits)) FROM search_slice) + (SELECT SUM(LENGTH(bits)) FROM search_field)
			+ (SELECT SUM(LENGTH(sig)) FROM search_tail) + (SELECT SUM(LENGTH(docs)) FROM search_bundle)`)
		known := h.count(`SELECT (SELECT SUM(LENGTH(ids)) / 8 FROM search_block) + (SELECT COUNT(*) FROM search_tail)`)
		b.ReportMetric(float64(size)/float64(known), "B/msg")
		info, err := os.Stat(h.index.Path)
		h.must(err)
		b.ReportMetric(float64(info.Size())/float64(known), "file-B/msg")
	})
}

// BenchmarkSearch measures a search with and without the index.
func BenchmarkSearch(b *testing.B) {
	eachBench(b, func(b *testing.B, h *fixture) {
		h.fill()
		for name, c := range map[string]search.Criterion{
			"subject": {Test: search.InEnvelope, Header: "subject", Text: "orchard"},
			"body":    {Test: search.InBody, Text: "orchard"},
			"text":    {Test: search.InText, Text: "orchard"},
			"none":    {Test: search.InBody, Text: "lantern"},
			"short":   {Test: search.InBody, Text: "wyx"},
		} {
			for index, s := range map[string]*search.Searcher{"indexed": h.indexed, "scan": h.plain} {
				b.Run(name+"/"+index, func(b *testing.B) {
					v := h.view(h.box, folder.Inbox)
					hits := 0
					for b.Loop() {
						hits = len(h.search(s, v, c))
					}
					b.ReportMetric(float64(hits), "hits")
				})
			}
		}
	})
}

// BenchmarkFind measures an index query by a field, in a thousand and in a million messages.
func BenchmarkFind(b *testing.B) {
	for name, blocks := range map[string]int{"thousand": 1, "million": 1_953} {
		x, err := Open(b.Context(), Options{Path: filepath.Join(b.TempDir(), "search.db")})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = x.Close() })
		n, words := 0, strings.Fields(strings.Join(lines(b), " "))
		fields := func(n int) map[search.TextKind]string {
			subject, from := fmt.Sprintf("%s about the work of week %d", strings.ToLower(words[n*7919%len(words)]), n%52), fmt.Sprintf("c%d", n)
			if n%1_000 == 77 && n < 10_000 {
				subject, from = "the quarterly "+subject, "zoroaster"
			}
			return map[search.TextKind]string{
				0: fmt.Sprintf("mon, 02 nov 2026 10:%02d:%02d +0000", n/60%60, n%60), 1: subject,
				2: fmt.Sprintf("correspondent %d <%s@bench-sink.net>", n, from), 5: "me <me@bench-home.net>", 9: fmt.Sprintf("<%d.note@bench-sink.net>", n),
			}
		}
		next := func(count int) (docs []doc) {
			for range count {
				n++
				d := doc{db.ID(n), 1, new(signature)}
				for kind, text := range fields(n) {
					d.signature.add(kind, []byte(text))
				}
				docs = append(docs, d)
			}
			return docs
		}
		write := func(f func(tx *sql.Tx) error) {
			if err := x.write(b.Context(), f); err != nil {
				b.Fatal(err)
			}
		}
		began := time.Now()
		for range blocks {
			write(func(tx *sql.Tx) error {
				if err := writeBlock(b.Context(), tx, 1, next(blockDocs), fieldBuckets/blockBucketsPerPage); err != nil {
					return err
				}
				return buildSegments(b.Context(), tx, 1)
			})
		}
		write(func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(b.Context(), setIndexedThroughQuery, 1, 1, n); err != nil {
				return err
			}
			return addDocs(b.Context(), tx, next(blockDocs-24))
		})
		info, err := os.Stat(x.Path)
		if err != nil {
			b.Fatal(err)
		}
		b.Logf("%s: filled in %v, %d bytes a message", name, time.Since(began), info.Size()/int64(n))
		for what, c := range map[string]search.IndexClause{
			"subject": seek("quarterly", 1), "from": seek("zoroaster@", 2), "message-id": seek(fields(n / 3 * 2)[9], 9), "none": seek("nowhere", 1),
		} {
			b.Run(name+"/"+what, func(b *testing.B) {
				hits, took := 0, make([]time.Duration, 0, 4096)
				for b.Loop() {
					began := time.Now()
					found, err := x.Query(b.Context(), 1, search.IndexQuery{Folder: 1, Clause: c, Limit: 1_000})
					if err != nil {
						b.Fatal(err)
					}
					hits, took = len(found.Messages), append(took, time.Since(began))
				}
				slices.Sort(took) // other processes disturb the measurement
				b.ReportMetric(float64(took[len(took)/10].Microseconds()), "µs-fastest-tenth")
				b.ReportMetric(float64(hits), "hits")
			})
		}
	}
}

// BenchmarkFindText measures an index query for text anywhere in messages, in a thousand and in a
// hundred thousand, short ones and of 8 KiB.
func BenchmarkFindText(b *testing.B) {
	text := lines(b)
	for _, length := range []int{500, 8 << 10} {
		r := rand.New(rand.NewPCG(1, 2))
		sigs := make([]*signature, 8*blockDocs)
		for i := range sigs {
			var body strings.Builder
			for body.Len() < length {
				body.WriteString(text[r.IntN(len(text))] + "\r\n")
			}
			sigs[i] = new(signature)
			sigs[i].add(search.BodyText, []byte(strings.ToLower(body.String())))
			sigs[i].add(search.HeaderText, fmt.Appendf(nil, "message-id: <%d.%d@bench-sink.net>", i, r.Uint64()))
		}
		sigs[77].add(search.BodyText, []byte("in the orchard"))
		for _, blocks := range []int{2, 200} {
			x, err := Open(b.Context(), Options{Path: filepath.Join(b.TempDir(), "search.db")})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = x.Close() })
			for block := range blocks {
				docs := make([]doc, blockDocs)
				for i := range docs {
					docs[i] = doc{db.ID(block*blockDocs + i + 1), 1, sigs[block%8*blockDocs+i]}
				}
				if err := x.write(b.Context(), func(tx *sql.Tx) error {
					if err := writeBlock(b.Context(), tx, 1, docs, pagesPerBlock); err != nil {
						return err
					}
					return buildSegments(b.Context(), tx, 1)
				}); err != nil {
					b.Fatal(err)
				}
			}
			if _, err := x.writer.ExecContext(b.Context(), setIndexedThroughQuery, 1, 1, blocks*blockDocs); err != nil {
				b.Fatal(err)
			}
			for _, word := range []string{"orchard", "nowhere near it"} {
				b.Run(fmt.Sprintf("%dB/%d/%s", length, blocks*blockDocs, word), func(b *testing.B) {
					hits, took := 0, make([]time.Duration, 0, 4096)
					for b.Loop() {
						began := time.Now()
						found, err := x.Query(b.Context(), 1, search.IndexQuery{Folder: 1, Clause: seek(word, search.HeaderText, search.BodyText), Limit: 10_000})
						if err != nil {
							b.Fatal(err)
						}
						hits, took = len(found.Messages), append(took, time.Since(began))
					}
					slices.Sort(took) // other processes disturb the measurement
					b.ReportMetric(float64(took[len(took)/10].Microseconds()), "µs-fastest-tenth")
					b.ReportMetric(float64(hits), "hits")
				})
			}
		}
	}
}

var (
	sowMessages = db.SQL(`INSERT INTO message (id, mailbox, blob, size, outbound, message_id, envelope, structure)
		WITH RECURSIVE n(i) AS (SELECT CAST($1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < $2)
		SELECT $3 + i, $4, 0, 2000, 0, '', $5, $6 FROM n`)
	sowRows = db.SQL(`INSERT INTO folder_message (folder, uid, message, flags, keywords, modseq, size, internal_date, saved_at)
		WITH RECURSIVE n(i) AS (SELECT CAST($1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < $2)
		SELECT $4, i, $3 + i, 0, '', 1, 2000, 0, 0 FROM n`)
	sowFolder = db.SQL(`UPDATE folder SET uid_next = $2 + 1, messages = $2 WHERE id = $1`)
)

// BenchmarkList measures a page of a mailbox's messages by a subject that all have, or none.
func BenchmarkList(b *testing.B) {
	for _, blocks := range []int{2, 330} {
		for engine, url := range map[string]func(testing.TB) string{"sqlite": dbtest.SQLite, "postgres": dbtest.Postgres} {
			h := newFixture(b, url(b))
			folders, err := h.List(h.ctx(), h.box)
			h.must(err)
			in := folders[slices.IndexFunc(folders, func(f folder.Folder) bool { return f.Name == folder.Inbox })].ID
			first, n := db.MinIDAt(time.Now().Add(-time.Hour)), blocks*blockDocs
			envelope := []byte(`(NIL "Your order of this week" (("Ann" NIL "ann" "shop.example")) NIL NIL (("Bob" NIL "bob" "here.example")) NIL NIL NIL NIL)`)
			dbtest.Exec(b, h.db, sowMessages.With(1, n, first, h.box, envelope, []byte{}), sowRows.With(1, n, first, in), sowFolder.With(in, n))
			sig := new(signature)
			sig.add(1, []byte("your order of this week"))
			for block := range blocks {
				docs := make([]doc, blockDocs)
				for i := range docs {
					docs[i] = doc{first + db.ID(block*blockDocs+i+1), h.box, sig}
				}
				h.must(h.index.write(h.ctx(), func(tx *sql.Tx) error {
					if err := writeBlock(h.ctx(), tx, h.box, docs, fieldBuckets/blockBucketsPerPage); err != nil {
						return err
					}
					return buildSegments(h.ctx(), tx, h.box)
				}))
			}
			for _, text := range []string{fmt.Sprintf("UPDATE search_state SET upto = %d", int64(first)+int64(n)), fmt.Sprintf("INSERT INTO search_folder VALUES (%d, %d, %d)", in, h.box, n)} {
				_, err := h.index.writer.ExecContext(h.ctx(), text)
				h.must(err)
			}
			for _, subject := range []string{"order", "nowhere"} {
				for index, s := range map[string]*search.Searcher{"indexed": h.indexed, "plain": h.plain} {
					b.Run(fmt.Sprintf("%s/%d/%s/%s", engine, n, subject, index), func(b *testing.B) {
						pages := 0
						for b.Loop() {
							pages = 0
							for p, more := (db.Page{Limit: 50}), true; more; pages++ {
								_, goesOn, next, err := s.ListMessages(h.ctx(), h.box, search.MessageFilter{Subject: subject}, p)
								h.must(err)
								p.After, more = next, goesOn && subject == "nowhere"
							}
						}
						b.ReportMetric(float64(pages), "pages")
					})
				}
			}
		}
	}
}
