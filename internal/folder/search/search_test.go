// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/folder/snapshot"
)

func TestSearch(t *testing.T) {
	each(t, func(h *fixture) {
		day := func(d int) time.Time { return time.Date(2026, 3, d, 0, 0, 0, 0, time.UTC) }
		texts := []string{
			"From: =?utf-8?q?J=C3=BCrgen?= <j@example.com>\r\nTo: Bob <bob@demo.test>, group: c@example.com;\r\nSubject: =?utf-8?b?R3LDvMOfZQ==?=\r\n" +
				"Date: Mon, 2 Mar 2026 23:30:00 -0500\r\nX-Odd: some \"thing\"\r\n\r\nplain body\r\n",
			"Subject: two\r\nReply-To: list@example.com\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n" +
				"--b\r\nContent-Type: text/plain; charset=iso-8859-1\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n" +
				"STRA=DFE and a soft=\r\nbreak\r\n--b\r\nContent-Type: application/octet-stream\r\n\r\nhidden\r\n" +
				"--b\r\nContent-Type: message/rfc822\r\n\r\nSubject: inner\r\n\r\ninmost\r\n--b--\r\n",
			"Subject: \r\n\r\n" + strings.Repeat("x", 40_000) + "needle at the buffer's end" + strings.Repeat("x", 100_000),
			"no header at all",
			"Subject: five\r\nMIME-Version: 1.0\r\nContent-Type: text/html; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n" +
				"<style>.needless{}</style><p class=3D\"lead\">Your in<b>voi</b>ce of <i>12 &euro;</i>\r\nis <a href=3D\"https://example.com/pay\">h=C3=A9re</a></p>",
		}
		for i, text := range texts {
			u := h.upload(text)
			u.Date = day(i + 1).Add(12 * time.Hour)
			h.append(u)
		}
		v := h.view()
		_, _, err := v.UpdateFlags(h.ctx(), numbers(2, 3), folder.FlagUpdate{Op: folder.AddFlags, Flags: folder.Seen, Keywords: []string{"Work"}})
		h.must(err)
		since := v.Snapshot().At(1).ModSeq
		not := func(c Criterion) Criterion { c.Not = !c.Not; return c }
		text := func(test CriterionKind, s string) Criterion { return Criterion{Test: test, Text: s} }
		header := func(name, s string) Criterion { return Criterion{Test: HasHeader, Header: name, Text: s} }
		date := func(test CriterionKind, d int) Criterion { return Criterion{Test: test, Time: day(d)} }
		for i, c := range []struct {
			c    Criterion
			want string
		}{
			{Criterion{}, "[1 2 3 4 5]"},
			{not(Criterion{}), "[]"},
			{Criterion{Test: HasFlags, Flags: folder.Seen}, "[2 3]"},
			{Criterion{Test: HasFlags, Flags: folder.Seen | folder.Recent}, "[2 3]"},
			{not(Criterion{Test: HasFlags, Flags: folder.Seen}), "[1 4 5]"},
			{text(HasKeyword, "WORK"), "[2 3]"},
			{text(HasKeyword, "none"), "[]"},
			{Criterion{Test: HasUID, UIDs: numbers(1, 4, 9)}, "[1 4]"},
			{Criterion{Test: Larger, Num: 1000}, "[3]"},
			{Criterion{Test: Smaller, Num: 17}, "[4]"},
			{Criterion{Test: ModSeqAtLeast, Num: since}, "[2 3]"},
			{date(DateBefore, 3), "[1 2]"},
			{date(DateSince, 3), "[3 4 5]"},
			{Criterion{Test: SavedSince, Time: time.Now().Add(-time.Hour)}, "[1 2 3 4 5]"},
			{date(SentSince, 2), "[1]"},
			{date(SentSince, 3), "[]"},
			{date(SentBefore, 3), "[1]"},
			{header("from", "jürgen"), "[1]"},
			{header("From", "JÜRGEN <j@"), "[1]"},
			{header("to", "c@example"), "[1]"},
			{header("subject", "GRÜSSE"), "[]"},
			{header("subject", "grüße"), "[1]"},
			{header("x-odd", "\"thing"), "[1]"},
			{header("reply-to", "list"), "[2]"},
			{header("subject", ""), "[1 2 3 5]"},
			{text(InBody, "straße"), "[2]"},
			{text(InBody, "softBREAK"), "[2]"},
			{text(InBody, "hidden"), "[]"},
			{text(InBody, "inner"), "[2]"},
			{text(InBody, "inmost"), "[2]"},
			{text(InBody, "two"), "[]"},
			{text(InText, "two"), "[2]"},
			{text(InText, "subject: grü"), "[1]"},
			{text(InBody, "your INVOICE of 12 €"), "[5]"},
			{text(InBody, "12 € is hére"), "[5]"},
			{text(InText, "<b>"), "[]"},
			{text(InText, "example.com/pay"), "[]"},
			{text(InBody, "lead"), "[]"},
			{text(InBody, "needle at the buffer's END"), "[3]"},
			{not(text(InBody, "needle")), "[1 2 4 5]"},
			{Criterion{Test: Or, Children: []Criterion{text(InBody, "needle"), {Test: Smaller, Num: 17}}}, "[3 4]"},
			{Criterion{Test: And, Children: []Criterion{not(text(InBody, "needle")), {Test: HasFlags, Flags: folder.Seen}, header("subject", "two")}}, "[2]"},
			{not(Criterion{Test: Or, Children: []Criterion{header("subject", "two"), date(SentSince, 2)}}), "[3 4 5]"},
		} {
			got, err := h.Search(h.ctx(), v, c.c, nil)
			if err != nil || fmt.Sprint(got) != c.want {
				t.Errorf("search %d %+v: %v, %v; want %s", i, c.c, got, err, c.want)
			}
		}
	})
}

// SEARCH finds text in charsets for which mail uses other names.
func TestSearchCharsets(t *testing.T) {
	each(t, func(h *fixture) {
		texts := []string{
			"Subject: =?cp949?B?x9Gxub7u?=\r\nContent-Type: text/plain; charset=iso-8859-1\r\n\r\nprice: 5 \x80\r\n",
			"Subject: =?iso-2022-kr?B?GyQpQw49Q0doDw==?=\r\nContent-Type: text/plain; charset=ms932\r\nContent-Transfer-Encoding: base64\r\n\r\nkL+LgY+R\r\n",
			"Subject: =?macgreek?B?uuHs6A==?=\r\nContent-Type: text/html; charset=utf-7\r\n\r\n<p>+AOQ-hnlich\r\n",
		}
		for _, text := range texts {
			h.append(h.upload(text))
		}
		v := h.view()
		for _, c := range []struct {
			c    Criterion
			want string
		}{
			{Criterion{Test: HasHeader, Header: "subject", Text: "한국어"}, "[1]"},
			{Criterion{Test: HasHeader, Header: "subject", Text: "시험"}, "[2]"},
			{Criterion{Test: HasHeader, Header: "subject", Text: "ΚΑΛΗ"}, "[3]"},
			{Criterion{Test: InBody, Text: "5 €"}, "[1]"},
			{Criterion{Test: InText, Text: "請求書"}, "[2]"},
			{Criterion{Test: InBody, Text: "Ähnlich"}, "[3]"},
		} {
			got, err := h.Search(h.ctx(), v, c.c, nil)
			if err != nil || fmt.Sprint(got) != c.want {
				t.Errorf("search %+v: %v, %v; want %s", c.c, got, err, c.want)
			}
		}
	})
}

// HEADER searches the text of each field of that name; SUBJECT and similar ones search the
// ENVELOPE's text (RFC 9051 §6.4.4).
func TestSearchHeader(t *testing.T) {
	each(t, func(h *fixture) {
		h.append(
			h.upload("Subject: first\r\nSubject: =?utf-8?q?zw=C3=B6lf?=\r\nFrom: j@example.com (Joe \"the\" Great)\r\nFrom: \"Roe, Jane\"\r\n <jane@example.com>\r\n"+
				"To: undisclosed-recipients:;\r\nMessage-ID: <1@x>\r\nMessage-ID: <2@x>\r\n\r\n"),
			h.upload("Subject: first\r\nFrom: Joe <j@example.com>\r\n\r\n"))
		v := h.view()
		for i, c := range []struct{ header, text, in, envelope string }{
			{"subject", "FIRST", "[1 2]", "[1 2]"},
			{"Subject", "ZWÖLF", "[1]", "[]"},
			{"message-id", "2@x", "[1]", "[]"},
			{"from", "joe \"THE\" great)", "[1]", "[]"},
			{"from", "\"Roe, Jane\" <", "[1]", "[]"},
			{"from", "Roe, Jane <jane@", "[]", "[1]"},
			{"from", "Joe <j@", "[2]", "[2]"},
			{"to", "recipients:;", "[1]", "[]"},
			{"to", "", "[1]", "[1]"},
		} {
			for test, want := range map[CriterionKind]string{HasHeader: c.in, InEnvelope: c.envelope} {
				got, err := h.Search(h.ctx(), v, Criterion{Test: test, Header: c.header, Text: c.text}, nil)
				if err != nil || fmt.Sprint(got) != want {
					t.Errorf("search %d, test %d: %v, %v; want %s", i, test, got, err, want)
				}
			}
		}
	})
}

// stopped is a file store that cancels a context when files are first read.
type stopped struct {
	blob.FileStore
	blob.FileReader
	stop  func()
	reads *int
}

func (s stopped) Open(ctx context.Context, name db.ID) (blob.FileReader, error) {
	r, err := s.FileStore.Open(ctx, name)
	s.FileReader = r
	return s, err
}

func (s stopped) ReadAt(p []byte, off int64) (int, error) {
	s.stop()
	*s.reads++
	return s.FileReader.ReadAt(p, off)
}

func (s stopped) Close() error { return s.FileReader.Close() }

// A search for many texts reads each message only once.
func TestSearchReadsOnce(t *testing.T) {
	each(t, func(h *fixture) {
		h.append(h.upload(mail("big", strings.Repeat("Hello.\r\n", 50_000)+"a needle")))
		v := h.view()
		reads := 0
		h.Blobs.Files = stopped{FileStore: h.Blobs.Files, stop: func() {}, reads: &reads}
		search := func(c Criterion) []uint32 {
			reads = 0
			uids, err := h.Search(h.ctx(), v, c, nil)
			h.must(err)
			return uids
		}
		search(Criterion{Test: InText, Text: "absent"})
		once := reads
		some, all := Criterion{Test: Or}, Criterion{Test: And}
		for i := range 50 {
			text := fmt.Sprint("x", i)
			some.Children = append(some.Children, Criterion{Test: InBody, Text: text}, Criterion{Test: InText, Text: text}, Criterion{Test: HasHeader, Header: "X", Text: text})
			all.Children = append(all.Children, Criterion{Test: InText, Text: text, Not: true})
		}
		if got := search(some); got != nil || reads > once {
			t.Errorf("found %v with %d readings; one text takes %d", got, reads, once)
		}
		some.Children = append(some.Children, Criterion{Test: InBody, Text: "O.\r\nA NEEDLE"})
		all.Children = append(all.Children, Criterion{Test: InBody, Text: "needle"}, Criterion{Test: InText, Text: "subject: big"}, Criterion{Test: InBody, Text: "big", Not: true})
		if got := search(Criterion{Test: And, Children: []Criterion{some, all}}); len(got) != 1 || reads > once {
			t.Errorf("found %v with %d readings; one text takes %d", got, reads, once)
		}
		if search(Criterion{Test: InBody, Text: "hello"}); reads >= once {
			t.Errorf("%d readings for what stands at the beginning; all takes %d", reads, once)
		}
		if got := search(Criterion{Test: HasHeader, Header: "Subject", Text: "big"}); len(got) != 1 || reads > 0 {
			t.Errorf("found %v with %d readings of what the ENVELOPE has", got, reads)
		}
	})
}

// A search for many texts in one large message ends when its context ends.
func TestSearchEnds(t *testing.T) {
	each(t, func(h *fixture) {
		h.append(h.upload(mail("big", strings.Repeat("Hello.\r\n", 50_000))))
		v := h.view()
		ctx, cancel := context.WithCancel(h.ctx())
		reads := 0
		h.Blobs.Files = stopped{FileStore: h.Blobs.Files, stop: cancel, reads: &reads}
		c := Criterion{Test: Or}
		for i := range 50 {
			c.Children = append(c.Children, Criterion{Test: InBody, Text: fmt.Sprint("x", i)})
		}
		if _, err := h.Search(ctx, v, c, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if reads > 1 {
			t.Errorf("%d readings after the end", reads-1)
		}
	})
}

// A search finds keywords that the folder's table did not accept.
func TestSearchUncountedKeywords(t *testing.T) {
	each(t, func(h *fixture) {
		v := h.view()
		table := v.KeywordTable()
		for size := 1 << 16; size > 0; size /= 2 { // no space is left, not even for a small set
			for n := 0; table.ID(fmt.Sprintf("%0*d", size, n)) != snapshot.OverflowKeywords; n++ {
			}
		}
		late := h.upload(mail("one", "Hello."))
		late.Keywords = []string{"late"}
		uids := h.append(late, h.upload(mail("two", "Hello.")))
		_, err := v.Sync(h.ctx(), true)
		h.must(err)
		for _, c := range []struct {
			c    Criterion
			want []uint32
		}{
			{Criterion{Test: HasKeyword, Text: "LATE"}, uids[:1]},
			{Criterion{Test: HasKeyword, Text: "new", Not: true}, uids},
		} {
			if found, err := h.Search(h.ctx(), v, c.c, nil); err != nil || !slices.Equal(found, c.want) {
				t.Errorf("%+v finds %v, %v", c.c, found, err)
			}
		}
	})
}
