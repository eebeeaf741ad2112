// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// written returns what write writes, UTF8 enabled or not.
func written(t *testing.T, utf8 bool, write func(w *Writer)) string {
	t.Helper()
	var out bytes.Buffer
	var buffers BufferPool
	w := NewWriter(&out, &buffers)
	w.UTF8 = utf8
	write(w)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if w.buf != nil {
		t.Error("an idle Writer holds a buffer")
	}
	return out.String()
}

func TestResponses(t *testing.T) {
	flags := Flags{Seen | Deleted, []string{"$Forwarded"}}
	sent := &ListData{Attributes: []string{`\HasNoChildren`, `\Sent`}, Separator: '/', Mailbox: "Gesendet/é"}
	tests := []struct {
		want  string
		write func(w *Writer)
	}{
		{"a1 OK LOGIN completed\r\n", func(w *Writer) { w.Tagged("a1", OK, "", "LOGIN completed") }},
		{"a1 NO [TRYCREATE] No such folder.\r\n", func(w *Writer) { w.Tagged("a1", No, CodeTryCreate, "No such folder.") }},
		{"a1 OK x  y\r\n", func(w *Writer) { w.Tagged("a1", OK, "", "x\r\ny") }},
		{"a1 OK .\r\n", func(w *Writer) { w.Tagged("a1", OK, "", "") }},
		{"* OK [UIDNEXT 4392] Next.\r\n", func(w *Writer) { w.Untagged(OK, CodeUIDNext(4392), "Next.") }},
		{"* OK [UIDVALIDITY 3857529045] .\r\n", func(w *Writer) { w.Untagged(OK, CodeUIDValidity(3857529045), "") }},
		{"* OK [UNSEEN 12] .\r\n", func(w *Writer) { w.Untagged(OK, CodeUnseen(12), "") }},
		{"* OK [HIGHESTMODSEQ 715194045007] .\r\n", func(w *Writer) { w.Untagged(OK, CodeHighestModSeq(715194045007), "") }},
		{`* OK [PERMANENTFLAGS (\Seen \Deleted $Forwarded \*)] .` + "\r\n", func(w *Writer) { w.Untagged(OK, CodePermanentFlags(flags, true), "") }},
		{"* OK [PERMANENTFLAGS ()] .\r\n", func(w *Writer) { w.Untagged(OK, CodePermanentFlags(Flags{}, false), "") }},
		{"a OK [APPENDUID 38505 3955] .\r\n", func(w *Writer) { w.Tagged("a", OK, CodeAppendUID(38505, SetOf(3955)), "") }},
		{"a OK [COPYUID 38505 304,319:320 3956:3958] .\r\n", func(w *Writer) {
			w.Tagged("a", OK, CodeCopyUID(38505, SetOf(304, 319, 320), SetOf(3956, 3957, 3958)), "")
		}},
		{"a OK [MODIFIED 7,9] .\r\n", func(w *Writer) { w.Tagged("a", OK, CodeModified(SetOf(7, 9)), "") }},
		{"* OK [CAPABILITY IMAP4rev1 IDLE] .\r\n", func(w *Writer) { w.Untagged(OK, CodeCapability("IMAP4rev1", "IDLE"), "") }},
		{"a OK [MAILBOXID (F2)] .\r\n", func(w *Writer) { w.Tagged("a", OK, CodeMailboxID("F2"), "") }},
		{"a NO [BADCHARSET (UTF-8)] .\r\n", func(w *Writer) { w.Refuse("a", newError(No, CodeBadCharset("UTF-8"), "")) }},
		{"* BAD x\r\n", func(w *Writer) { w.Refuse("", bad("x")) }},
		{"* BYE [TOOBIG] x\r\n", func(w *Writer) { w.Refuse("a1", newError(Bye, CodeTooBig, "x")) }},
		{"+ idling\r\n", func(w *Writer) { _ = w.Continue("idling") }},
		{"+ \r\n+ AGE=\r\n", func(w *Writer) { _ = w.Challenge(nil); _ = w.Challenge([]byte("\x00a")) }},
		{"* 23 EXISTS\r\n* 1 RECENT\r\n* 44 EXPUNGE\r\n", func(w *Writer) { w.Exists(23); w.Recent(1); w.Expunge(44) }},
		{"* VANISHED 405,407\r\n* VANISHED (EARLIER) 1:3\r\n", func(w *Writer) {
			w.Vanished(false, SetOf(405, 407))
			w.Vanished(true, SetOf(3, 2, 1))
			w.Vanished(true, nil)
		}},
		{`* FLAGS (\Seen \Deleted $Forwarded)` + "\r\n", func(w *Writer) { w.FolderFlags(flags) }},
		{"* CAPABILITY IMAP4rev1\r\n* ENABLED CONDSTORE\r\n* ENABLED\r\n", func(w *Writer) { w.Capability("IMAP4rev1"); w.Enabled("CONDSTORE"); w.Enabled() }},
		{`* NAMESPACE (("" "/")) NIL NIL` + "\r\n", func(w *Writer) { w.PersonalNamespace('/') }},
		{`* ID ("name" "mailstead" "os" NIL)` + "\r\n* ID NIL\r\n", func(w *Writer) { w.ID(IDParam{"name", "mailstead", false}, IDParam{"os", "", true}); w.ID() }},
		{"* QUOTA \"\" (STORAGE 10 512)\r\n* QUOTAROOT INBOX \"\"\r\n", func(w *Writer) { w.Quota("", QuotaUsage{"STORAGE", 10, 512}); w.QuotaRoot("INBOX", "") }},
		{`* LIST (\HasNoChildren \Sent) "/" Gesendet/&AOk-` + "\r\n", func(w *Writer) { w.List(sent) }},
		{`* LSUB () NIL "a b"` + "\r\n", func(w *Writer) { w.Lsub(&ListData{Mailbox: "a b"}) }},
		{`* LIST () "/" foo ("CHILDINFO" ("SUBSCRIBED") "OLDNAME" (bar))` + "\r\n", func(w *Writer) {
			w.List(&ListData{Separator: '/', Mailbox: "foo", ChildInfo: []string{"SUBSCRIBED"}, OldName: "bar"})
		}},
		{"* STATUS x (MESSAGES 1 UIDNEXT 2 SIZE 3 APPENDLIMIT NIL MAILBOXID (F2))\r\n", func(w *Writer) {
			w.Status(&StatusData{Mailbox: "x", Items: StatusMessages | StatusUIDNext | StatusSize | StatusAppendLimit | StatusMailboxID,
				Messages: 1, UIDNext: 2, Size: 3, MailboxID: "F2"})
		}},
		{"* SEARCH 2 5 6 7 (MODSEQ 917162500)\r\n* SEARCH\r\n", func(w *Writer) { w.SearchResult(SetOf(2, 5, 6, 7), 917162500); w.SearchResult(nil, 9) }},
		{"* SORT 5 3 4\r\n", func(w *Writer) { w.SortResult([]uint32{5, 3, 4}, 0) }},
		{"* ESEARCH (TAG \"A282\") UID MIN 2 MAX 10 ALL 2,10 COUNT 2 MODSEQ 7\r\n* ESEARCH (TAG \"A283\") COUNT 0\r\n* ESEARCH (TAG \"A\") PARTIAL (-1:-1 10)\r\n* ESEARCH (TAG \"A\") PARTIAL (9:9 NIL)\r\n", func(w *Writer) {
			all := SearchOptions{Return: ReturnMin | ReturnMax | ReturnAll | ReturnCount}
			w.ESearch("A282", true, all, SetOf(2, 10), 7)
			w.ESearch("A283", false, all, nil, 0)
			w.ESearch("A", false, SearchOptions{Return: ReturnPartial, Partial: Page{1, 1, true}}, SetOf(2, 10), 0)
			w.ESearch("A", false, SearchOptions{Return: ReturnPartial, Partial: Page{9, 9, false}}, SetOf(2, 10), 0)
		}},
	}
	for _, tt := range tests {
		if got := written(t, false, tt.write); got != tt.want {
			t.Errorf("got  %q\nwant %q", got, tt.want)
		}
	}
}

func TestFetchRow(t *testing.T) {
	got := written(t, false, func(w *Writer) {
		row := w.Fetch(12)
		row.UID(99)
		row.Flags(Flags{System: Seen | Recent})
		row.InternalDate(time.Date(1996, 7, 7, 2, 44, 25, 0, time.FixedZone("", -7*3600-1800)))
		row.Size(4286)
		row.ModSeq(624140003)
		row.EmailID("M1")
		row.ThreadID("")
		row.ThreadID("T1")
		row.SaveDate(time.Time{})
		row.SaveDate(time.Date(2026, 11, 17, 0, 0, 0, 0, time.UTC))
		row.Preview("Hi", true)
		row.Preview("", false)
		row.Raw("ENVELOPE", []byte("(NIL)"))
		row.SectionBytes(&Section{Peek: true, Part: PartHeader}, []byte("A: b\r\n\r\n"))
		row.Section(&Section{Path: []uint32{1, 2}, HasPartial: true, Offset: 2, Count: 9}, 3, strings.NewReader("abcdef"))
		row.SectionBytes(&Section{Part: PartHeaderFieldsNot, Path: []uint32{3}, Fields: []string{"Date", "a b"}}, nil)
		row.SectionNil(&Section{Kind: SectionBinary, Path: []uint32{4}})
		row.SectionSize(&Section{Kind: SectionBinarySize, Path: []uint32{1}}, 7)
		row.SectionBytes(&Section{Kind: SectionRFC822, Part: PartText}, []byte("x"))
		row.End()
	})
	want := `* 12 FETCH (UID 99 FLAGS (\Seen \Recent) INTERNALDATE " 7-Jul-1996 02:44:25 -0730" RFC822.SIZE 4286` +
		` MODSEQ (624140003) EMAILID (M1) THREADID NIL THREADID (T1) SAVEDATE NIL SAVEDATE "17-Nov-2026 00:00:00 +0000"` +
		` PREVIEW "Hi" PREVIEW NIL ENVELOPE (NIL) BODY[HEADER] {8}` + "\r\nA: b\r\n\r\n" +
		" BODY[1.2]<2> {3}\r\nabc BODY[3.HEADER.FIELDS.NOT (Date \"a b\")] {0}\r\n BINARY[4] NIL BINARY.SIZE[1] 7 RFC822.TEXT {1}\r\nx)\r\n"
	if got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestStrings(t *testing.T) {
	for s, want := range map[string]string{
		"":                        `""`,
		"plain":                   `"plain"`,
		`a "b" \c`:                `"a \"b\" \\c"`,
		"é":                       "{2}\r\né",
		"a\r\nb":                  "{4}\r\na\r\nb",
		"a\tb":                    "{3}\r\na\tb",
		"nul\x00":                 "{4}\r\nnul?",
		strings.Repeat("x", 1001): "{1001}\r\n" + strings.Repeat("x", 1001),
	} {
		if got := written(t, false, func(w *Writer) { w.String(s) }); got != want {
			t.Errorf("%.20q: %.40q", s, got)
		}
	}
	got := written(t, true, func(w *Writer) { w.String("é").SP().String("\xff").SP().Mailbox("Entwürfe").SP().Mailbox("A&B") })
	if want := "\"é\" {1}\r\n\xff \"Entwürfe\" A&B"; got != want {
		t.Errorf("in UTF-8: %q", got)
	}
	got = written(t, false, func(w *Writer) {
		w.AString("atom").SP().AString("a b").SP().AString("nil").SP().AString("").SP().Mailbox("A&B é").SP().Mailbox("%")
	})
	if want := `atom "a b" "nil" "" "A&-B &AOk-" "%"`; got != want {
		t.Errorf("words: %q", got)
	}
}

func TestLiterals(t *testing.T) {
	big := strings.Repeat("0123456789abcdef", 20_000)
	for _, text := range []string{"", "abc", big} {
		want := "{" + strconv.Itoa(len(text)) + "}\r\n" + text + " end"
		for name, literal := range map[string]func(w *Writer) *Writer{
			"reader": func(w *Writer) *Writer { return w.Literal(int64(len(text)), strings.NewReader(text+"beyond")) },
			"slow reader": func(w *Writer) *Writer {
				return w.Literal(int64(len(text)), iotest.HalfReader(strings.NewReader(text)))
			},
			"eof and data": func(w *Writer) *Writer {
				return w.Literal(int64(len(text)), iotest.DataErrReader(strings.NewReader(text)))
			},
			"bytes": func(w *Writer) *Writer { return w.LiteralBytes([]byte(text)) },
		} {
			if got := written(t, false, func(w *Writer) { literal(w).Raw(" end") }); got != want {
				t.Errorf("%s of %d bytes: %d bytes written, %.40q", name, len(text), len(got), got)
			}
		}
	}
}

func TestShortLiteral(t *testing.T) {
	broken := errors.New("broken")
	for name, tt := range map[string]struct {
		write func(w *Writer)
		want  error
	}{
		"reader": {func(w *Writer) { w.Literal(5, strings.NewReader("abc")) }, ErrShortLiteral},
		"broken": {func(w *Writer) { w.Literal(5, iotest.ErrReader(broken)) }, broken},
	} {
		var buffers BufferPool
		w := NewWriter(io.Discard, &buffers)
		tt.write(w)
		w.Tagged("a1", OK, "", "done")
		if err := w.Flush(); !errors.Is(err, tt.want) || !errors.Is(w.Err(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// counter counts writes and fails from the one with number failAt on.
type counter struct {
	writes, bytes, failAt int
}

var errGone = errors.New("gone")

func (c *counter) Write(p []byte) (int, error) {
	c.writes++
	if c.failAt > 0 && c.writes >= c.failAt {
		return 0, errGone
	}
	c.bytes += len(p)
	return len(p), nil
}

func TestWritesFewTimes(t *testing.T) {
	var c counter
	var buffers BufferPool
	w := NewWriter(&c, &buffers)
	for n := uint32(1); n <= 20_000; n++ {
		row := w.Fetch(n)
		row.UID(n)
		row.Flags(Flags{System: Seen})
		row.End()
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if most := c.bytes/(bufferSize-1024) + 1; c.writes > most {
		t.Errorf("%d writes for %d bytes, want at most %d", c.writes, c.bytes, most)
	}
}

func TestBytesFillTheBuffer(t *testing.T) {
	var c counter
	var buffers BufferPool
	w := NewWriter(&c, &buffers)
	for _, size := range []int{8_000, bufferSize, 10 * bufferSize} {
		before := c
		for range 100 {
			w.LiteralBytes(make([]byte, size))
			if cap(w.buf) > bufferSize {
				t.Fatalf("bytes of %d: the buffer has %d", size, cap(w.buf))
			}
		}
		if most := (c.bytes-before.bytes)/bufferSize + 1; size <= bufferSize && c.writes-before.writes > most {
			t.Errorf("bytes of %d: %d writes, want at most %d", size, c.writes-before.writes, most)
		}
	}
}

func TestFailedWriteStays(t *testing.T) {
	c := counter{failAt: 2}
	var buffers BufferPool
	w := NewWriter(&c, &buffers)
	for range 20_000 {
		w.Exists(5)
	}
	if err := w.Flush(); err != errGone || c.writes != 2 {
		t.Errorf("%v after %d writes", err, c.writes)
	}
	var out bytes.Buffer
	w.Reset(&out, nil)
	w.Exists(5)
	if err := w.Flush(); err != errGone || out.Len() != 0 {
		t.Errorf("a Writer that failed goes on: %v", err)
	}
}

func TestHugeStringLeavesNoHugeBuffer(t *testing.T) {
	huge := strings.Repeat("x", 1<<20)
	got := written(t, false, func(w *Writer) {
		w.String(huge).CRLF()
		if w.Exists(1); cap(w.buf) > bufferSize {
			t.Errorf("the buffer has %d bytes", cap(w.buf))
		}
	})
	if !strings.HasSuffix(got, "x\r\n* 1 EXISTS\r\n") || len(got) != 1<<20+len("{1048576}\r\n\r\n* 1 EXISTS\r\n") {
		t.Errorf("%d bytes", len(got))
	}
}
