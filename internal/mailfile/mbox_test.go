// SPDX-License-Identifier: Apache-2.0

package mailfile

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/mailstead/mailstead/internal/fault"
)

// First lines of messages, as programs write them.
func TestFromLines(t *testing.T) {
	for _, c := range []struct{ line, date string }{
		{"From bob@example.org Sat Nov 21 17:00:09 2026", "2026-11-21 17:00:09"},
		{"From bob@example.org  Sat Jan  3 01:05:34 1996\r", "1996-01-03 01:05:34"},
		{"From - Tue Apr 27 19:42:22 2010", "2010-04-27 19:42:22"},                             // Thunderbird
		{"From ???@??? Mon Jan 01 00:00:01 1990", "1990-01-01 00:00:01"},                       // Eudora
		{"From 1551111111111111111@xxx Mon Dec 25 10:11:12 +0000 2017", "2017-12-25 10:11:12"}, // Google
		{"From bob@example.org Sat Nov 21 17:00:09 +0100 2026", "2026-11-21 16:00:09"},
		{"From bob@example.org Sat Nov 21 17:00:09 2026 -0500", "2026-11-21 22:00:09"},
		{"From bob@example.org Sat Nov 21 17:00:09 CET 2026", "2026-11-21 16:00:09"},
		{"From bob@example.org Sat Nov 21 17:00:09 PDT 2026", "2026-11-22 00:00:09"},
		{"From bob@example.org Sat Nov 21 17:00:09 MDT 2026", "2026-11-21 23:00:09"},
		{"From bob@example.org Sat Nov 21 17:00 2026", "2026-11-21 17:00:00"},
		{"From bob Sat, 21 Nov 2026 17:00:09 +0000 (UTC)", "2026-11-21 17:00:09"},
		{"From bob 21 Nov 2026 17:00:09", "2026-11-21 17:00:09"},
		{"From uucp Sat Nov 21 17:00:09 1998 remote from otherhost", "1998-11-21 17:00:09"},
		{"From \"Bob Jones\"@example.org Saturday November 21 17:00:09 2026", "2026-11-21 17:00:09"},
		{"From Sat Market Sat Nov 21 17:00:09 2026", "2026-11-21 17:00:09"},
		{"From bob Sat Nov 21 17:00:09 98", "1998-11-21 17:00:09"},
		{"From bob Tue Nov 21 17:00:09 100", "2000-11-21 17:00:09"},
		{"From bob 2026-11-21T17:00:09Z", "2026-11-21 17:00:09"},
		{"From bob 2026-11-21 17:00:09", "2026-11-21 17:00:09"},
		{"From bob 2026-11-21 17:00:09 +0200", "2026-11-21 15:00:09"},
		{"From Sat Nov 21 17:00:09 2026", "2026-11-21 17:00:09"},
		{"From MAILER-DAEMON Thu Feb 29 00:00:00 1996", "1996-02-29 00:00:00"},
		{"From - Thu Jan 01 00:00:00 1970", "0001-01-01 00:00:00"}, // no date, but the first line of a message
		{"From bob@example.org Wed Dec 31 16:00:00 1969", "0001-01-01 00:00:00"},
		{"From bob 1904-01-01T00:00:00Z", "0001-01-01 00:00:00"},
		{"From now on we meet on Sat", ""},
		{"From Mon to Fri 10:00 2026", ""},
		{"From bob@example.org", ""},
		{"From ", ""},
		{"From bob Sat Nov 41 17:00:09 2026", ""},
		{"From bob Sat Nov 21 27:00:09 2026", ""},
		{"From bob Sat Nov 21 17:00:09 2026 and so on", ""},
		{"From bob Sat Nov 21 17:00:09 1066", ""},
		{"From bob Sat Nov 21 17:00:09 2026 " + strings.Repeat("A ", 600), ""},
		{">From bob Sat Nov 21 17:00:09 2026", ""},
	} {
		_, got, ok := parseFromLine([]byte(c.line + "\n"))
		if ok != (c.date != "") || ok && !got.Equal(date(c.date)) {
			t.Errorf("%s: %v %v", c.line, got, ok)
		}
	}
}

const (
	from1 = "From a@x Sat Nov 21 17:00:00 2026\n"
	from2 = "From b@x Sun Nov 22 17:00:00 2026\n"
)

// How programs separate and quote messages.
func TestMboxVariants(t *testing.T) {
	cl := func(text string) string { return fmt.Sprintf("Content-Length: %d\n", len(text)) }
	inner := "Hello.\n\n" + from2 + "Subject: no message\n\nquoted\n"
	for _, c := range []struct {
		name, mbox string
		quoting    Quoting
		want       []string
	}{
		{"nothing", "", "", nil},
		{"plain", from1 + "A: 1\n\none\n\n" + from2 + "A: 2\n\ntwo\n\n", "", []string{"A: 1\n\none\n", "A: 2\n\ntwo\n"}},
		{"no empty lines between", from1 + "A: 1\n\none\n" + from2 + "A: 2\n\ntwo\n", "", []string{"A: 1\n\none\n", "A: 2\n\ntwo\n"}},
		{"empty lines before", "\n\r\n" + from1 + "A: 1\n\none\n\n", "", []string{"A: 1\n\none\n"}},
		{"several empty lines between", from1 + "A: 1\n\none\n\n\n\n" + from2 + "A: 2\n\ntwo", "", []string{"A: 1\n\none\n\n\n", "A: 2\n\ntwo"}},
		{"CRLF", strings.ReplaceAll(from1+"A: 1\n\none\n>From x\n\n"+from2+"A: 2\n\ntwo\n\n", "\n", "\r\n"), "", []string{"A: 1\n\none\nFrom x\n", "A: 2\n\ntwo\n"}},
		{"mixed line ends", from1 + "A: 1\r\n\none\r\n\r\n" + from2 + "A: 2\n\r\ntwo\n\n", "", []string{"A: 1\n\none\n", "A: 2\n\ntwo\n"}},
		{"cut off", from1 + "A: 1\n\none\n\n" + from2 + "A: 2", "", []string{"A: 1\n\none\n", "A: 2"}},
		{"a line From within", from1 + "A: 1\n\nFrom here on\n\nFrom Monday on\n\n" + from2 + "A: 2\n\ntwo\n\n", "", []string{"A: 1\n\nFrom here on\n\nFrom Monday on\n", "A: 2\n\ntwo\n"}},
		{"clocks that were never set", from1 + "A: 1\n\none\n\nFrom - Thu Jan 01 00:00:00 1970\nA: 2\n\ntwo\n\nFrom b@x Wed Dec 31 19:00:00 1969\nA: 3\n\nthree\n\n", "", []string{"A: 1\n\none\n", "A: 2\n\ntwo\n", "A: 3\n\nthree\n"}},
		{"no body", from1 + "A: 1\n\n" + from2 + "A: 2\n\n", "", []string{"A: 1\n\n", "A: 2\n\n"}},
		{"no header", from1 + "no header\n\n" + from2 + "\nno header either\n\n", "", []string{"no header\n", "\nno header either\n"}},
		{"nothing in it", from1 + "\n" + from2 + "A: 2\n\ntwo\n\n" + from1 + "\n", "", []string{"", "A: 2\n\ntwo\n", ""}},
		{"mboxrd", from1 + "A: 1\n\n>From x\n>>From y\n>>>From z\n> From\n>Fromage\n\n", MboxRD, []string{"A: 1\n\nFrom x\n>From y\n>>From z\n> From\n>Fromage\n"}},
		{"detected", from1 + "A: 1\n\n>From x\n>>From y\n\n", "", []string{"A: 1\n\nFrom x\n>From y\n"}},
		{"mboxo", from1 + "A: 1\n\n>From x\n>>From y\n\n", MboxO, []string{"A: 1\n\nFrom x\n>>From y\n"}},
		{"mboxcl2", from1 + "A: 1\n\n>From x\n>>From y\n\n", MboxCL2, []string{"A: 1\n\n>From x\n>>From y\n"}},
		{"Content-Length fits", from1 + "A: 1\n" + cl(inner) + "\n" + inner + "\n" + from2 + "A: 2\n\n>From two\n\n", "", []string{"A: 1\n\n" + inner, "A: 2\n\n>From two\n"}},
		{"Content-Length fits to the end", from1 + "A: 1\n" + cl(inner) + "\n" + inner, "", []string{"A: 1\n\n" + inner}},
		{"Content-Length without an empty line", from1 + "A: 1\n" + cl(inner) + "\n" + inner + from2 + "A: 2\n\ntwo\n\n", "", []string{"A: 1\n\n" + inner, "A: 2\n\ntwo\n"}},
		{"Content-Length too small", from1 + "A: 1\nContent-Length: 3\n\n" + inner + "\n", "", []string{"A: 1\n\nHello.\n", "Subject: no message\n\nquoted\n"}},
		{"Content-Length too large", from1 + "A: 1\nContent-Length: 99999\n\n" + inner + "\n", "", []string{"A: 1\n\nHello.\n", "Subject: no message\n\nquoted\n"}},
		{"Content-Length within a line", from1 + "A: 1\nContent-Length: 44\n\n" + inner + "\n", "", []string{"A: 1\n\nHello.\n", "Subject: no message\n\nquoted\n"}},
		{"Content-Length of nonsense", from1 + "A: 1\nContent-Length: -9223372036854775809\n\none\n\n", "", []string{"A: 1\n\none\n"}},
		{"dates that nobody knows", "From a le 21 novembre\nA: 1\n\none\n\nFrom b le 22 novembre\nA: 2\n\ntwo\n\nFrom here on\nit is text\n\n", "", []string{"A: 1\n\none\n", "A: 2\n\ntwo\n\nFrom here on\nit is text\n"}},
		{"notes of a program", from1 + "Subject: DON'T DELETE THIS MESSAGE -- FOLDER INTERNAL DATA\nX-IMAP: 1 2\n\nThis text is part of the internal format.\n\n" + from2 + "A: 2\n\ntwo\n\n", "", []string{"A: 2\n\ntwo\n"}},
		{"a letter about notes of a program", from1 + "Subject: Re: DON'T DELETE THIS MESSAGE -- FOLDER INTERNAL DATA\n\nWhat is that?\n\n", "", []string{"Subject: Re: DON'T DELETE THIS MESSAGE -- FOLDER INTERNAL DATA\n\nWhat is that?\n"}},
		{"fields of programs", from1 + "Status: RO\nA: 1\nX-Keywords: a\n  b\nX-UID: 3\nB: 2\n folded\nContent-Length: 4\n\none\nStatus: kept\n\n", "", []string{"A: 1\nB: 2\n folded\n\none\nStatus: kept\n"}},
		{"a long line", from1 + "A: 1\n\n" + strings.Repeat("x", 200_000) + "\ny\n\n" + from2 + "A: 2\n\n" + strings.Repeat("y", fragmentSize) + "\n\n", "", []string{"A: 1\n\n" + strings.Repeat("x", 200_000) + "\ny\n", "A: 2\n\n" + strings.Repeat("y", fragmentSize) + "\n"}},
		{"a paragraph that quotes", from1 + "A: 1\n\nShe wrote\n" + from2 + "in a letter: no header.\n\nYours\n\n" + from2 + "A: 2\n\ntwo\n\n", "", []string{"A: 1\n\nShe wrote\n" + from2 + "in a letter: no header.\n\nYours\n", "A: 2\n\ntwo\n"}},
		{"a paragraph at the end", from1 + "A: 1\n\nShe wrote\n" + from2, "", []string{"A: 1\n\nShe wrote\n" + from2}},
		{"a line of another archive in the header", from1 + "A: 1\n>From the other\nB: 2\nFrom it again\n folded\n>>From - x\nC: 3\n\n>From y\n\n", "", []string{"A: 1\nB: 2\nC: 3\n\nFrom y\n"}},
		{"a line of another archive first", from1 + ">" + from2 + "A: 1\n\none\n\n", "", []string{"A: 1\n\none\n"}},
		{"byte order marks", "\xef\xbb\xbf\n" + from1 + "\xef\xbb\xbfA: 1\n\n\xef\xbb\xbfone\n\n" + from2 + "A: 2\n\ntwo\n\n", "", []string{"A: 1\n\n\xef\xbb\xbfone\n", "A: 2\n\ntwo\n"}},
		{"ours, changed by another program", "From MAILSTEAD Sat Nov 21 17:00:00 2026\nSubject: x\nStatus: RO\n\none\n\n", "", []string{"Subject: x\n\none\n"}},
	} {
		g := gather(t, c.mbox, Options{Kind: Mbox, Quoting: c.quoting})
		want := slices.Clone(c.want)
		for i := range want {
			want[i] = strings.ReplaceAll(want[i], "\n", "\r\n")
		}
		if got := g.texts(); !slices.Equal(got, want) {
			t.Errorf("%s: %.300q, not %.300q", c.name, got, want)
		}
	}
	g := &gathered{}
	if err := Read(strings.NewReader("Subject: x\n\nx\n"), Options{Kind: Mbox}, g.sink()); fault.KindOf(err) != fault.Invalid {
		t.Errorf("what is no mbox: %v", err)
	}
}

// What programs record about messages.
func TestStatus(t *testing.T) {
	for _, c := range []struct {
		head     string
		flags    Flags
		keywords string
		folder   string
		gone     bool
	}{
		{"Status: RO\n", Seen, "", "", false},
		{"Status: O\nX-Status: AFDT\nX-Keywords:  NonJunk  $Label1\n", Answered | Flagged | Deleted | Draft, "NonJunk $Label1", "", false},
		{"X-Mozilla-Status: 1007\nX-Mozilla-Status2: 00000000\nX-Mozilla-Keys: work $label2           \n", Seen | Answered | Flagged, "$Forwarded work $label2", "", false},
		{"X-Mozilla-Status: 0009\n", Seen, "", "", true},
		{"X-Mozilla-Status: what\n", 0, "", "", false},
		{"X-Gmail-Labels: Inbox,Important,Starred,Opened\n", Seen | Flagged, "", "INBOX", false},
		{"X-Gmail-Labels: Unread,\"Trips, 2019\",Category Updates\n", 0, "", "Trips, 2019", false},
		{"X-Gmail-Labels: =?UTF-8?Q?Archived,R=C3=A9sum=C3=A9s?=\n", Seen, "", "Résumés", false},
		{"X-Gmail-Labels: Trash,\n Inbox,\n Work\n", Seen, "", "Trash", false},
		{"X-Gmail-Labels: Archived,Opened\n", Seen, "", "Archive", false},
		{"X-Gmail-Labels: Drafts\n", Seen | Draft, "", "Drafts", false},
		// Google's export after Thunderbird has stored it.
		{"X-Mozilla-Status: 0000\nX-Mozilla-Keys: work\nX-GM-THRID: 1\nX-Gmail-Labels: Sent\n", Seen, "work", "Sent", false},
		{"Content-Length: 9\nX-Gmail-Labels: Sent\nX-Gmail-Labels: Trash\n", Seen, "", "Sent", false},
		{"Received: from x\nX-Gmail-Labels: Trash\n", 0, "", "", false},  // the message's author added it
		{"Received: from x\nX-Mozilla-Status: 0009\n", 0, "", "", false}, // a previous owner deleted it there
		{"X-Account-Key: account1\nX-UIDL: 7\nX-Mozilla-Status: 0001\nReceived: from x\nX-Mozilla-Status: 0008\n", Seen, "", "", false},
	} {
		g := gather(t, from1+c.head+"Subject: x\n\nStatus: RO\n\n", Options{})
		m := g.messages[0]
		if m.Flags != c.flags || strings.Join(m.Keywords, " ") != c.keywords || m.Folder != c.folder || m.Expunged != c.gone || !m.Date.Equal(date("2026-11-21 17:00:00")) {
			t.Errorf("%q: %+v", c.head, m.Message)
		}
		if !strings.HasSuffix(m.text, "Subject: x\r\n\r\nStatus: RO\r\n") {
			t.Errorf("%q: %q", c.head, m.text)
		}
	}
}

// Gmail exports labels in the account's language.
func TestLabels(t *testing.T) {
	for labels, want := range map[string]struct {
		folder string
		flags  Flags
	}{
		"Posteingang,Wichtig,Ungelesen":                                  {"INBOX", 0},
		"Gesendet,Geöffnet":                                              {"Sent", Seen},
		"Entwürfe,Ungelesen,Markiert":                                    {"Drafts", Flagged | Draft},
		`Archiviert,"Kategorie: ""Soziale Netzwerke""",Köln`:             {"Köln", Seen},
		`Kategorie: "Neuigkeiten",Archiviert`:                            {"Archive", Seen},
		"Kategorie A,Archiviert":                                         {"Kategorie A", Seen},
		"Boîte de réception,Non lus,Catégorie\u00a0: E-mails personnels": {"INBOX", 0},
		"Messages archivés,Ouvert,\"Culture, associations\"":             {"Culture, associations", Seen},
		"Messages envoyés":                                               {"Sent", Seen},
		"MESSAGES ENVOYE\u0301S":                                         {"Sent", Seen}, // decomposed
		"Corbeille,Boîte de réception,Suivis":                            {"Trash", Seen | Flagged},
		"Recibidos,No leídos,Destacados":                                 {"INBOX", Flagged},
		"Papelera,Abierto":                                               {"Trash", Seen},
		"Posta in arrivo,Non letti":                                      {"INBOX", 0},
		"Caixa de entrada,Não lidas,Importante":                          {"INBOX", 0},
		"Verzonden,Geopend":                                              {"Sent", Seen},
		"Odebrane,Nieprzeczytane,Ważne":                                  {"INBOX", 0},
		"Archivováno,Nepřečtené,Kategorie: Sítě":                         {"Archive", 0},
		"Входящие,Непрочитанные,Важное":                                  {"INBOX", 0},
		"Корзина":                                                        {"Trash", Seen},
		"Gelen Kutusu,Okunmamış":                                         {"INBOX", 0},
		"受信トレイ,重要,未読":                                                    {"INBOX", 0},
		"送信済みメール,開封済み":                                                   {"Sent", Seen},
		"받은편지함,읽지않음":                                                     {"INBOX", 0},
		"收件箱,未读":                                                         {"INBOX", 0},
		"寄件備份,已開啟":                                                       {"Sent", Seen},
		"البريد الوارد,غير مقروءة":                                       {"INBOX", 0},
		"דואר נכנס,לא נקראו":                                             {"INBOX", 0},
		"กล่องจดหมาย,ยังไม่ได้อ่าน":                                      {"INBOX", 0},
		"پیش\u200cنویس\u200cها,خوانده نشده":                              {"Drafts", Draft},
		"Спам,Непрочитані":                                               {"Spam", 0},
		"Rechnungen/2024,Wichtig,Geöffnet":                               {"Rechnungen/2024", Seen},
	} {
		head := "X-Gmail-Labels: " + mime.BEncoding.Encode("utf-8", labels) + "\n"
		m := gather(t, from1+head+"Subject: x\n\nx\n\n", Options{}).messages[0]
		if m.Folder != want.folder || m.Flags != want.flags {
			t.Errorf("%s: %q %v", labels, m.Folder, m.Flags)
		}
	}
}

// A message need not be read to its end. A transport error must not pass for the end of a message.
func TestMboxErrors(t *testing.T) {
	n := 0
	err := Read(strings.NewReader(strings.Repeat(from1+"A: 1\n\n"+strings.Repeat("one\n", 10_000)+"\n", 3)), Options{}, Sink{Message: func(m *Message) error {
		n++
		_, err := m.Body.Read(make([]byte, 100))
		return err
	}})
	if err != nil || n != 3 {
		t.Errorf("read %d: %v", n, err)
	}
	lost := errors.New("the line is gone")
	for _, text := range []string{from1 + "A: 1\n\none\n\n", from1 + "A: 1\n\none", from1 + "A", from1, ""} {
		g := &gathered{}
		if err := Read(io.MultiReader(strings.NewReader(text), iotest.ErrReader(lost)), Options{Kind: Mbox}, g.sink()); !errors.Is(err, lost) {
			t.Errorf("%q: %v", text, err)
		}
	}
	full := errors.New("no room")
	if err := Read(strings.NewReader(from1+"A: 1\n\none\n"), Options{}, Sink{Message: func(*Message) error { return full }}); !errors.Is(err, full) {
		t.Errorf("the sink's error: %v", err)
	}
}

// Hostile mboxes are read to their end, in linear time.
func TestHostileMbox(t *testing.T) {
	const size = 4 << 20
	for name, piece := range map[string]string{
		"only first lines":           from1,
		"first lines without a date": "From x\n\n",
		"Content-Length each time":   from1 + "Content-Length: 8388607\n\n",
		"empty lines":                "\n",
		"no lines":                   "x",
		"quotes":                     ">",
		"a header without an end":    "A: 1\n",
		"folded":                     " x\n",
		"labels":                     "X-Gmail-Labels: a\n b\n",
	} {
		size := size
		if strings.Contains(piece, "8388607") {
			size = 4 * maxLookahead // so that there is always more to read ahead
		}
		err := Read(strings.NewReader(from1+strings.Repeat(piece, size/len(piece))), Options{Kind: Mbox}, Sink{Message: func(m *Message) error {
			_, err := io.Copy(io.Discard, m.Body)
			return err
		}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Programs' private fields are limited like any header although they are dropped: their contents
// are held in memory.
func TestEndlessKeywords(t *testing.T) {
	line := "X-Keywords: " + strings.Repeat("a ", 500) + "\n"
	g := gather(t, from1+strings.Repeat(line, 3*maxHeader/len(line))+"Subject: x\n\nx\n", Options{})
	if n := len(g.messages[0].Keywords); n > maxHeader/2 {
		t.Errorf("%d keywords are kept", n)
	}
}
