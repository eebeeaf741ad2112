// SPDX-License-Identifier: Apache-2.0

package fulltext

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/folder/search"
	"github.com/mailstead/mailstead/internal/needtest"
)

func each(t *testing.T, f func(h *fixture)) {
	t.Helper()
	dbtest.EachURL(t, func(t *testing.T, url string) { f(newFixture(t, url)) })
}

var words = []string{
	"alpha", "beta", "Straße", "GRÜSSE", "größe", "naïve", "Ελλάδα", "ΟΔΟΣ", "привет", "ПРИВЕТ", "日本語", "x", "ab", "İstanbul", "K", "invoice", "Invoices",
	"ſample", "\u212Aelvin", "a\xffb", "<b>bold</b>", "ﬁne", "ǅ",
}

func phrase(r *rand.Rand, n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = words[r.IntN(len(words))]
	}
	return strings.Join(list, " ")
}

// randomMail is a message of one of several forms.
func randomMail(r *rand.Rand) string {
	encoded := func(s string) string { return "=?utf-8?b?" + base64.StdEncoding.EncodeToString([]byte(s)) + "?=" }
	head := fmt.Sprintf("From: %s <%d@example.com>\r\nSubject: %s\r\nX-Odd: %s\r\n", encoded(phrase(r, 1)), r.IntN(30), encoded(phrase(r, 3)), phrase(r, 1))
	if r.IntN(2) == 0 {
		head += fmt.Sprintf("To: %d@demo.test, g: Bob <b%d@demo.test>;\r\nMessage-ID: <%d@example.com>\r\nCc: %s\r\n", r.IntN(9), r.IntN(9), r.IntN(99), phrase(r, 1))
	}
	if r.IntN(4) == 0 { // repeated fields, which the ENVELOPE lacks or has in another form
		head += fmt.Sprintf("Subject: %s\r\nFrom: %d@example.com (%s)\r\nCc: %s:;\r\n", encoded(phrase(r, 2)), r.IntN(30), encoded(phrase(r, 1)), phrase(r, 1))
	}
	wrap := func(typ, text string) string {
		return "Content-Type: " + typ + "\r\nContent-Transfer-Encoding: base64\r\n\r\n" + base64.StdEncoding.EncodeToString([]byte(text)) + "\r\n"
	}
	switch r.IntN(7) {
	case 0:
		return head + "\r\n" + phrase(r, 20)
	case 1:
		return head + "MIME-Version: 1.0\r\n" + wrap("text/html; charset=utf-8", phrase(r, 30))
	case 2:
		return head + "MIME-Version: 1.0\r\n" + wrap("text/plain; charset=iso-8859-1", "gr\xfc\xdfe "+phrase(r, 3))
	case 3:
		return head + "MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n" + wrap("text/plain; charset=utf-8", phrase(r, 5)) +
			"--b\r\nContent-Type: message/rfc822\r\n\r\nSubject: " + encoded(phrase(r, 2)) + "\r\n\r\n" + phrase(r, 3) + "\r\n--b\r\n" +
			wrap("application/pdf", phrase(r, 5)) + "--b--\r\n"
	case 4:
		return head + "\r\n" + strings.Repeat(phrase(r, 1)+"-", 4_000) + phrase(r, 2)
	case 5:
		return head // only a header
	}
	if r.IntN(10) > 0 {
		return phrase(r, 4)
	}
	return head + "\r\n" + strings.Repeat("long ", maxBodyBytes/5) + phrase(r, 2) // more than is indexed
}

func randomCriterion(r *rand.Rand, depth int) search.Criterion {
	c := search.Criterion{Not: r.IntN(4) == 0}
	if depth > 0 && r.IntN(2) == 0 {
		c.Test = []search.CriterionKind{search.And, search.Or}[r.IntN(2)]
		for range 1 + r.IntN(3) {
			c.Children = append(c.Children, randomCriterion(r, depth-1))
		}
		return c
	}
	c.Text = phrase(r, 1+r.IntN(2))
	if n := len(c.Text); r.IntN(2) == 0 { // a part of it, even of a character
		from := r.IntN(n)
		c.Text = c.Text[from : from+r.IntN(n-from+1)]
	}
	switch r.IntN(6) {
	case 0:
		c.Test = search.InBody
	case 1:
		c.Test = search.InText
		if r.IntN(3) == 0 {
			c.Text = "x-odd: " + c.Text
		}
	case 2:
		c.Test, c.Num = search.Larger, uint64(r.IntN(2000))
	default:
		c.Test = []search.CriterionKind{search.HasHeader, search.InEnvelope}[r.IntN(2)]
		c.Header = []string{"subject", "FROM", "to", "Cc", "X-Odd", "message-id", "sender"}[r.IntN(7)]
		if r.IntN(3) == 0 {
			c.Text = fmt.Sprint(r.IntN(9), "@DEMO")
		}
	}
	return c
}

// TestSameAnswers checks that a search with the index returns the same as one without, after any
// indexing, moves and deletions.
func TestSameAnswers(t *testing.T) {
	needtest.Full(t, "every kind of query")
	each(t, func(h *fixture) {
		r := rand.New(rand.NewPCG(1, 2))
		other := h.newMailbox()
		for round := range 12 {
			for n := 20 + r.IntN(120); n > 0; n-- {
				box := h.box
				if r.IntN(5) == 0 {
					box = other
				}
				h.append(box, []string{folder.Inbox, "Archive"}[r.IntN(2)], randomMail(r))
			}
			for range r.IntN(6) { // usually some remain
				_, err := h.indexer.indexBatch(h.ctx(), 0, h.index.Now().Add(1e9))
				h.must(err)
			}
			if round%3 == 2 {
				h.sweep()
			}
			if r.IntN(2) == 0 { // otherwise the index knows fewer messages
				h.must(h.indexer.updateAllIndexedThrough(h.ctx()))
			}
			v := h.view(h.box, folder.Inbox)
			h.sameAnswers(r, v)
			h.shuffle(r, v)
			h.ahead += 1e12
			_, err := h.CollectGarbage(h.ctx())
			h.must(err)
			_, err = v.Sync(h.ctx(), true)
			h.must(err)
			h.sameAnswers(r, v)
			h.sameAnswers(r, h.view(other, "Archive"))
		}
		h.fill()
		if h.count(`SELECT COUNT(*) FROM search_block`) == 0 {
			t.Error("no block was made")
		}
		h.sameAnswers(r, h.view(h.box, "Archive"))
	})
}

func (h *fixture) count(query string) (n int) {
	h.Helper()
	h.must(h.index.reader.QueryRowContext(h.ctx(), query).Scan(&n))
	return n
}

func (h *fixture) sameAnswers(r *rand.Rand, v *folder.View) {
	h.Helper()
	for range 12 {
		c := randomCriterion(r, 2)
		if got, want := h.search(h.indexed, v, c), h.search(h.plain, v, c); !slices.Equal(got, want) {
			h.Errorf("%+v: %v; without the index %v", c, got, want)
		}
	}
}

// shuffle copies, moves and expunges some of a folder's messages.
func (h *fixture) shuffle(r *rand.Rand, v *folder.View) {
	h.Helper()
	some := func(one int) (uids []uint32) {
		for _, uid := range v.Resolve([]folder.Range{{Lo: 1, Hi: folder.Star}}, true) {
			if r.IntN(one) == 0 {
				uids = append(uids, uid)
			}
		}
		return uids
	}
	_, err := v.Copy(h.ctx(), some(8), "Archive")
	h.must(err)
	_, err = v.Move(h.ctx(), some(8), "Archive")
	h.must(err)
	_, _, err = v.UpdateFlags(h.ctx(), some(4), folder.FlagUpdate{Op: folder.AddFlags, Flags: folder.Deleted})
	h.must(err)
	_, err = v.Expunge(h.ctx(), nil)
	h.must(err)
}

func numbered(n int) (texts []string) {
	for i := range n {
		texts = append(texts, fmt.Sprintf("Subject: number %d of all\r\nFrom: a@example.com\r\n\r\nthe body says <%d>\r\n", i, i))
	}
	return texts
}

var allMessages = db.SQL(`SELECT id FROM message WHERE mailbox = $1 ORDER BY id`)

var bodySays7 = search.Criterion{Test: search.InBody, Text: "SAYS <7>"}

// all returns the ids of all messages of a mailbox.
func (h *fixture) all(box db.ID) (ids []db.ID) {
	h.Helper()
	h.must(h.db.Each(h.ctx(), allMessages.With(box), func(r db.Row) error {
		var id db.ID
		err := r.Scan(&id)
		ids = append(ids, id)
		return err
	}))
	return ids
}

// narrowed returns how many messages the index knows, and how many remain after the prefilter.
func (h *fixture) narrowed(kind search.TextKind, text string) (known, left int) {
	h.Helper()
	n, err := h.index.Prefilter(h.ctx(), h.box, h.all(h.box), []search.IndexTerm{{Kinds: []search.TextKind{kind}, Text: []byte(text)}})
	h.must(err)
	for at := range n.Messages {
		if n.MayContain[0][at/64]>>(at%64)&1 == 1 {
			left++
		}
	}
	return len(n.Messages), left
}

func TestNarrows(t *testing.T) {
	each(t, func(h *fixture) {
		h.append(h.box, folder.Inbox, numbered(blockDocs+100)...)
		h.fill()
		for _, c := range []struct {
			kind search.TextKind
			text string
			want int
		}{
			{1, "number 77 of", 1}, {search.BodyText, "says <77>", 1}, {search.HeaderText, "subject: number 600", 1},
			{1, "nowhere", 0}, {search.BodyText, "number", 0}, {search.BodyText, "the body", blockDocs + 100},
		} {
			known, left := h.narrowed(c.kind, c.text)
			if known != blockDocs+100 || left < c.want || left > c.want+5 {
				t.Errorf("%d %q: %d known, %d left; want %d", c.kind, c.text, known, left, c.want)
			}
		}
	})
}

// TestSweep checks that deleted messages leave the index, and no others.
func TestSweep(t *testing.T) {
	each(t, func(h *fixture) {
		h.append(h.box, folder.Inbox, numbered(blockDocs+100)...)
		h.fill()
		v := h.view(h.box, folder.Inbox)
		uids := v.Resolve([]folder.Range{{Lo: 8, Hi: blockDocs + 50}}, false)
		_, _, err := v.UpdateFlags(h.ctx(), slices.DeleteFunc(uids, func(uid uint32) bool { return uid == 8 }), folder.FlagUpdate{Op: folder.AddFlags, Flags: folder.Deleted})
		h.must(err)
		_, err = v.Expunge(h.ctx(), nil)
		h.must(err)
		h.ahead = 1e12
		_, err = h.CollectGarbage(h.ctx())
		h.must(err)
		h.sweep()
		known, left := h.narrowed(search.BodyText, "says <7>")
		if known != 58 || left != 1 {
			t.Errorf("%d messages are left in the index, %d have the text", known, left)
		}
		if n := h.count(`SELECT (SELECT COUNT(*) FROM search_block) + (SELECT COUNT(*) FROM search_slice)`); n != 0 {
			t.Errorf("%d rows of blocks are left", n)
		}
	})
}

// TestAgain checks that a missing, damaged or outdated index is rebuilt, and that all results are
// right until then.
func TestAgain(t *testing.T) {
	each(t, func(h *fixture) {
		h.append(h.box, folder.Inbox, numbered(blockDocs+100)...)
		check := func(what string, known int) {
			t.Helper()
			if got, _ := h.narrowed(search.BodyText, "says <7>"); got != known {
				t.Errorf("%s: %d messages are known, want %d", what, got, known)
			}
			if got := h.search(h.indexed, h.view(h.box, folder.Inbox), bodySays7); !slices.Equal(got, []uint32{8}) {
				t.Errorf("%s: found %v", what, got)
			}
		}
		check("empty", 0)
		h.fill()
		check("full", blockDocs+100)
		path := h.index.Path
		reopen := func(what string, spoil func(), known int) {
			t.Helper()
			spoil()
			h.must(h.index.Close())
			h.open(path)
			check(what, known)
			h.fill()
			check(what+", filled again", blockDocs+100)
		}
		reopen("opened again", func() {}, blockDocs+100)
		reopen("another version", func() {
			_, err := h.index.writer.ExecContext(h.ctx(), `PRAGMA user_version = 999`)
			h.must(err)
		}, 0)
		reopen("no database", func() {
			h.must(h.index.Close())
			h.must(os.WriteFile(path, []byte(strings.Repeat("nonsense", 9999)), 0o600))
		}, 0)
		reopen("ended while it was begun anew", func() { // the log of the deleted file is left
			log, err := os.ReadFile(path + "-wal")
			h.must(err)
			h.must(h.index.Close())
			h.must(os.Remove(path))
			h.must(os.WriteFile(path+"-wal", log, 0o600))
		}, 0)
		// Run repairs damage that is detected later.
		_, err := h.index.writer.ExecContext(h.ctx(), `UPDATE search_tail SET sig = X'00'`)
		h.must(err)
		if got := h.search(h.indexed, h.view(h.box, folder.Inbox), bodySays7); !slices.Equal(got, []uint32{8}) {
			t.Errorf("damaged: found %v", got)
		}
		_, err = h.index.Prefilter(h.ctx(), h.box, h.all(h.box), []search.IndexTerm{{Kinds: []search.TextKind{1}, Text: []byte("abc")}})
		if !isDamageError(err) {
			t.Errorf("the damage is not seen: %v", err)
		}
		h.must(h.index.repair(h.ctx(), err))
		check("mended", 0)
		// If no file can be created, searches work without the index until one can.
		h.index.Path = filepath.Join(path, "no folder")
		if err := h.index.repair(h.ctx(), errDamaged); err == nil {
			t.Error("a file in a file was opened")
		}
		if got := h.search(h.indexed, h.view(h.box, folder.Inbox), bodySays7); !slices.Equal(got, []uint32{8}) {
			t.Errorf("lost: found %v", got)
		}
		h.index.Path = path
		_, err = h.indexer.indexBatch(h.ctx(), 0, h.index.Now())
		h.must(h.index.repair(h.ctx(), err))
		h.fill()
		check("found again", blockDocs+100)
	})
}

// TestLate checks that the second pass indexes a message that is committed after the first pass has
// seen later ones.
func TestLate(t *testing.T) {
	each(t, func(h *fixture) {
		h.append(h.box, folder.Inbox, numbered(10)...)
		_, err := h.index.writer.ExecContext(h.ctx(), `UPDATE search_state SET upto = ? WHERE pass = 0`, h.db.NewID())
		h.must(err)
		h.append(h.box, folder.Inbox, numbered(5)...)
		fill := func(pass int) {
			t.Helper()
			_, err := h.indexer.indexBatch(h.ctx(), pass, h.index.Now().Add(1e12))
			h.must(err)
		}
		known := func(want int) {
			t.Helper()
			if got, _ := h.narrowed(1, "number"); got != want {
				t.Errorf("%d messages are known, want %d", got, want)
			}
		}
		fill(0)
		known(5)
		fill(1)
		known(15)
		if n := h.count(`SELECT COUNT(*) FROM search_late`); n != 0 {
			t.Errorf("%d messages are still remembered", n)
		}
		fill(1)
		known(15)
	})
}

func TestWanted(t *testing.T) {
	var s signature
	text := []byte(strings.Repeat("a long needle, ", 30))
	s.add(search.BodyText, text)
	for n := 3; n < len(text); n++ {
		want := termBuckets(search.BodyText, text[:n])
		if len(want) == 0 || len(want) > maxTermBuckets || !bitset(s[:]).containsAll(want) {
			t.Fatalf("%d bytes: %v", n, want)
		}
	}
	if bitset(s[:]).containsAll(termBuckets(search.HeaderText, text)) {
		t.Error("the kinds are not told apart")
	}
}

func TestSliced(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	docs := make([]doc, blockDocs)
	keep := map[int]bool{}
	for i := range docs {
		docs[i] = doc{id: db.ID(i), signature: new(signature)}
		for range 300 {
			docs[i].signature.addBucket(uint32(r.IntN(buckets)))
		}
		if r.IntN(9) == 0 {
			keep[i] = true
		}
	}
	sigs := extractSignatures(transpose(docs), keep)
	if len(sigs) != len(keep) {
		t.Fatalf("%d signatures of %d", len(sigs), len(keep))
	}
	for n, s := range sigs {
		if *s != *docs[n].signature {
			t.Errorf("the signature of %d is another one", n)
		}
	}
}

var loseBytes = db.SQL(`DELETE FROM blob WHERE id = (SELECT m.blob FROM message AS m JOIN folder_message AS f ON f.message = m.id WHERE f.folder = $1 AND f.uid = $2)`)

// A message whose bytes are lost does not block indexing of its folder: it may have any text, and
// is found by its row.
func TestLostBytes(t *testing.T) {
	each(t, func(h *fixture) {
		h.append(h.box, folder.Inbox, numbered(3)...)
		v := h.view(h.box, folder.Inbox)
		dbtest.Exec(h, h.db, loseBytes.With(v.Folder().ID, 2))
		h.fill()
		if upto := h.count(`SELECT upto FROM search_folder`); upto != 3 {
			t.Errorf("indexed up to %d", upto)
		}
		uids, err := h.indexed.Search(h.ctx(), v, search.Criterion{Test: search.InBody, Text: "says <2>"}, nil)
		if !errors.Is(err, search.ErrIncomplete) || !slices.Equal(uids, []uint32{3}) {
			t.Errorf("found %v, %v", uids, err)
		}
		if uids := h.search(h.indexed, v, search.Criterion{Test: search.InEnvelope, Header: "Subject", Text: "number 1 of"}); !slices.Equal(uids, []uint32{2}) {
			t.Errorf("found %v", uids)
		}
	})
}
