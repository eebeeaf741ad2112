// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bufio"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"
)

// newTestReader returns a logged-in Reader on input; asked counts the
// continuation requests.
func newTestReader(input string) (r *Reader, asked *int) {
	asked = new(int)
	r = NewReader(bufio.NewReaderSize(strings.NewReader(input), 64), func(string) error {
		*asked++
		return nil
	})
	r.Limits = LimitsAfterLogin(1 << 20)
	return r, asked
}

func parseOne(t *testing.T, line string) (Command, error) {
	t.Helper()
	r, _ := newTestReader("a1 " + line + "\r\n")
	tag, cmd, err := r.ReadCommand()
	if tag != "a1" {
		t.Fatalf("%q: tag %q, error %v", line, tag, err)
	}
	return cmd, err
}

func seqs(s string) NumSet { set, _ := wholeSet(s); return NumSet{Set: set} }
func uids(s string) NumSet { set, _ := wholeSet(s); return NumSet{Set: set, UID: true} }

func day(y int, m time.Month, d int) time.Time { return time.Date(y, m, d, 0, 0, 0, 0, time.UTC) }

// The examples are those of RFC 3501, 9051, 2177, 2971, 3502, 4315, 4731,
// 4959, 5032, 5161, 5182, 5256, 5258, 5819, 6154, 6851, 7162, 8437, 8970, 9208
// and 9394.
func TestCommands(t *testing.T) {
	header := SearchKey{Op: SearchEnvelope, Header: "From", Text: "Smith"}
	since := SearchKey{Op: SearchSince, Date: day(1994, time.February, 1)}
	tests := []struct {
		line string
		want Command
	}{
		{"CAPABILITY", &Capability{}},
		{"noop", &Noop{}},
		{"LOGOUT", &Logout{}},
		{"STARTTLS", &StartTLS{}},
		{"UNAUTHENTICATE", &Unauthenticate{}},
		{"NAMESPACE", &Namespace{}},
		{"IDLE", &Idle{}},
		{"CHECK", &Check{}},
		{"CLOSE", &Close{}},
		{"UNSELECT", &Unselect{}},
		{"EXPUNGE", &Expunge{}},
		{"UID EXPUNGE 3000:3002", &Expunge{uids("3000:3002")}},
		{"AUTHENTICATE GSSAPI", &Authenticate{Mechanism: "GSSAPI"}},
		{"AUTHENTICATE PLAIN dGVzdAB0ZXN0AHRlc3Q=", &Authenticate{Mechanism: "PLAIN", Initial: []byte("test\x00test\x00test"), HasInitial: true}},
		{"AUTHENTICATE EXTERNAL =", &Authenticate{Mechanism: "EXTERNAL", HasInitial: true}},
		{"authenticate scram-sha-256", &Authenticate{Mechanism: "SCRAM-SHA-256"}},
		{"LOGIN SMITH SESAME", &Login{"SMITH", "SESAME"}},
		{`LOGIN smith@example.com "se\"sa\\me ü"`, &Login{"smith@example.com", `se"sa\me ü`}},
		{`LOGIN "" ""`, &Login{}},
		{"LOGIN {5+}\r\nSMITH {4+}\r\npa s", &Login{"SMITH", "pa s"}},
		{"LOGIN {5}\r\nSMITH {4}\r\npa s", &Login{"SMITH", "pa s"}},
		{"ENABLE CONDSTORE X-GOOD-IDEA utf8=accept", &Enable{[]string{"CONDSTORE", "X-GOOD-IDEA", "UTF8=ACCEPT"}}},
		{"ID NIL", &ID{}},
		{`ID ("name" "sodr" "version" "19.34" "vendor" NIL)`, &ID{[]IDParam{{"name", "sodr", false}, {"version", "19.34", false}, {"vendor", "", true}}}},
		{"COMPRESS DEFLATE", &Compress{"DEFLATE"}},

		{"SELECT inbox", &Select{Mailbox: "INBOX"}},
		{"EXAMINE blurdybloop", &Select{Mailbox: "blurdybloop", ReadOnly: true}},
		{"SELECT &U,BTFw-", &Select{Mailbox: "台北"}},
		{"SELECT INBOX (CONDSTORE)", &Select{Mailbox: "INBOX", CondStore: true}},
		{"SELECT INBOX (QRESYNC (67890007 20050715194045000 41,43:211,214:541))", &Select{Mailbox: "INBOX", CondStore: true,
			QResync: &QResync{UIDValidity: 67890007, ModSeq: 20050715194045000, Known: uids("41,43:211,214:541").Set}}},
		{"SELECT INBOX (QRESYNC (67890007 90060115194045000 41:211,214:541 (1:2 41:42)))", &Select{Mailbox: "INBOX", CondStore: true,
			QResync: &QResync{UIDValidity: 67890007, ModSeq: 90060115194045000, Known: uids("41:211,214:541").Set,
				MatchSeqs: seqs("1:2").Set, MatchUIDs: seqs("41:42").Set}}},
		{"SELECT INBOX (QRESYNC (1 2))", &Select{Mailbox: "INBOX", CondStore: true, QResync: &QResync{UIDValidity: 1, ModSeq: 2}}},
		{"CREATE owatagusiam/", &Create{Mailbox: "owatagusiam/"}},
		{`CREATE MySpecial (USE (\Drafts \Sent))`, &Create{"MySpecial", []string{`\Drafts`, `\Sent`}}},
		{"DELETE blurdybloop", &Delete{"blurdybloop"}},
		{`RENAME "INBOX" old-mail`, &Rename{"INBOX", "old-mail"}},
		{"SUBSCRIBE #news.comp.mail.mime", &Subscribe{"#news.comp.mail.mime"}},
		{"UNSUBSCRIBE #news.comp.mail.mime", &Unsubscribe{"#news.comp.mail.mime"}},
		{"LSUB \"#news.\" \"comp.%\"", &Lsub{"#news.", "comp.%"}},
		{"STATUS blurdybloop (UIDNEXT MESSAGES HIGHESTMODSEQ)", &StatusCommand{"blurdybloop", StatusUIDNext | StatusMessages | StatusHighestModSeq}},

		{`LIST "" ""`, &List{Patterns: []string{""}}},
		{`LIST #news.comp.mail.misc %`, &List{Reference: "#news.comp.mail.misc", Patterns: []string{"%"}}},
		{`LIST "" &AOk-*`, &List{Patterns: []string{"é*"}}},
		{`LIST (SUBSCRIBED RECURSIVEMATCH) "" *`, &List{Patterns: []string{"*"}, Select: ListSelectSubscribed | ListSelectRecursiveMatch, Extended: true}},
		{`LIST () "" (INBOX Drafts "Sent/%")`, &List{Patterns: []string{"INBOX", "Drafts", "Sent/%"}, Extended: true}},
		{`LIST "" % RETURN (CHILDREN SUBSCRIBED SPECIAL-USE STATUS (MESSAGES UNSEEN))`, &List{Patterns: []string{"%"}, Extended: true,
			Return: ListReturnChildren | ListReturnSubscribed | ListReturnSpecialUse | ListReturnStatus, Status: StatusMessages | StatusUnseen}},
		{`LIST (SPECIAL-USE) "" * RETURN ()`, &List{Patterns: []string{"*"}, Select: ListSelectSpecialUse, Extended: true}},

		{"COPY 2:4 MEETING", &Copy{seqs("2:4"), "MEETING"}},
		{"UID COPY 2:* INBOX", &Copy{uids("2:*"), "INBOX"}},
		{"UID MOVE 42:69 foo", &Move{uids("42:69"), "foo"}},
		{`UID MOVE $ "foo bar"`, &Move{NumSet{UID: true, Saved: true}, "foo bar"}},

		{`STORE 2:4 +FLAGS (\Deleted)`, &Store{Messages: seqs("2:4"), Op: StoreAdd, Flags: Flags{System: Deleted}}},
		{`STORE 2 -flags.silent \seen $Forwarded $forwarded`, &Store{Messages: seqs("2"), Op: StoreRemove, Silent: true, Flags: Flags{Seen, []string{"$Forwarded"}}}},
		{`UID STORE 6,4,8 (UNCHANGEDSINCE 12121230045) +FLAGS.SILENT (\Deleted)`, &Store{Messages: uids("6,4,8"), Op: StoreAdd, Silent: true,
			Flags: Flags{System: Deleted}, UnchangedSince: 12121230045, HasUnchangedSince: true}},
		{`STORE 1 FLAGS ()`, &Store{Messages: seqs("1")}},
		{`STORE 1 FLAGS (\Answered \Flagged \Draft \Recent)`, &Store{Messages: seqs("1"), Flags: Flags{System: Answered | Flagged | Draft}}},

		{`SEARCH FLAGGED SINCE 1-Feb-1994 NOT FROM "Smith"`, &Search{Key: SearchKey{Op: SearchAnd, Keys: []SearchKey{
			{Op: SearchFlag, Flag: Flagged}, since, {Op: SearchEnvelope, Header: "From", Text: "Smith", Not: true}}}}},
		{"SEARCH CHARSET UTF-8 TEXT {6}\r\n\xd0\x96\xd0\x96xx", &Search{Key: SearchKey{Op: SearchText, Text: "ЖЖxx"}}},
		{`UID SEARCH RETURN (MIN COUNT SAVE) OR FROM Smith (1:3,5 UNSEEN)`, &Search{UID: true,
			SearchOptions: SearchOptions{Extended: true, Return: ReturnMin | ReturnCount | ReturnSave},
			Key: SearchKey{Op: SearchOr, Keys: []SearchKey{header, {Op: SearchAnd, Keys: []SearchKey{
				{Op: SearchNumbers, Numbers: seqs("1:3,5")}, {Op: SearchFlag, Flag: Seen, Not: true}}}}}}},
		{`SEARCH RETURN () ALL`, &Search{SearchOptions: SearchOptions{Extended: true, Return: ReturnAll}}},
		{`SEARCH NOT NOT NEW`, &Search{Key: SearchKey{Op: SearchAnd, Keys: []SearchKey{{Op: SearchFlag, Flag: Recent}, {Op: SearchFlag, Flag: Seen, Not: true}}}}},
		{`SEARCH $ SMALLER 4196`, &Search{Key: SearchKey{Op: SearchAnd, Keys: []SearchKey{
			{Op: SearchNumbers, Numbers: NumSet{Saved: true}}, {Op: SearchSmaller, Num: 4196}}}}},
		{`SEARCH UID 20:30`, &Search{Key: SearchKey{Op: SearchNumbers, Numbers: uids("20:30")}}},
		{`SEARCH MODSEQ "/flags/\\draft" all 620162338`, &Search{Key: SearchKey{Op: SearchModSeq, Num: 620162338}}},
		{`SEARCH MODSEQ 0`, &Search{Key: SearchKey{Op: SearchModSeq}}},
		{`SEARCH YOUNGER 259200`, &Search{Key: SearchKey{Op: SearchYounger, Num: 259200}}},
		{`SEARCH UNKEYWORD $Junk`, &Search{Key: SearchKey{Op: SearchKeyword, Text: "$Junk", Not: true}}},
		{`SEARCH HEADER "X-Spam" ""`, &Search{Key: SearchKey{Op: SearchHeader, Header: "X-Spam"}}},
		{`SEARCH SENTON "30-Jun-2026"`, &Search{Key: SearchKey{Op: SearchSentOn, Date: day(2026, time.June, 30)}}},
		{`UID SEARCH RETURN (PARTIAL -1:-100) UNDELETED`, &Search{UID: true,
			SearchOptions: SearchOptions{Extended: true, Return: ReturnPartial, Partial: Page{1, 100, true}},
			Key:           SearchKey{Op: SearchFlag, Flag: Deleted, Not: true}}},
		{`SORT (SUBJECT REVERSE DATE) UTF-8 ALL`, &Sort{By: []SortBy{{"SUBJECT", false}, {"DATE", true}}}},
		{`UID SORT RETURN (ALL) (ARRIVAL) US-ASCII FROM Smith`, &Sort{UID: true, SearchOptions: SearchOptions{Extended: true, Return: ReturnAll},
			By: []SortBy{{"ARRIVAL", false}}, Key: header}},
		{`THREAD REFERENCES UTF-8 SINCE 1-FEB-1994`, &Thread{Algorithm: "REFERENCES", Key: since}},

		{"GETQUOTA \"\"", &GetQuota{}},
		{"GETQUOTAROOT INBOX", &GetQuotaRoot{"INBOX"}},
		{`SETQUOTA "" (STORAGE 512)`, &SetQuota{"", []QuotaLimit{{"STORAGE", 512}}}},
	}
	for _, tt := range tests {
		got, err := parseOne(t, tt.line)
		if err != nil {
			t.Errorf("%s: %v", tt.line, err)
		} else if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s:\n got %#v\nwant %#v", tt.line, got, tt.want)
		}
	}
}

func TestFetchItems(t *testing.T) {
	const fast = FetchFlags | FetchInternalDate | FetchSize
	tests := []struct {
		line string
		want Fetch
	}{
		{"FETCH 1:* FAST", Fetch{Messages: seqs("1:*"), Items: fast}},
		{"FETCH 1 all", Fetch{Messages: seqs("1"), Items: fast | FetchEnvelope}},
		{"FETCH 1 FULL", Fetch{Messages: seqs("1"), Items: fast | FetchEnvelope | FetchBody}},
		{"UID FETCH 1:* (FLAGS)", Fetch{Messages: uids("1:*"), Items: FetchUID | FetchFlags}},
		{"FETCH 2 (UID BODYSTRUCTURE BODY MODSEQ EMAILID THREADID SAVEDATE)", Fetch{Messages: seqs("2"),
			Items: FetchUID | FetchBodyStructure | FetchBody | FetchModSeq | FetchEmailID | FetchThreadID | FetchSaveDate}},
		{"FETCH 2:4 (FLAGS BODY[HEADER.FIELDS (DATE FROM)])", Fetch{Messages: seqs("2:4"), Items: FetchFlags,
			Sections: []Section{{Part: PartHeaderFields, Fields: []string{"DATE", "FROM"}}}}},
		{"FETCH 1 body.peek[4.2.2.1.mime]<0.2048>", Fetch{Messages: seqs("1"), Sections: []Section{
			{Peek: true, Path: []uint32{4, 2, 2, 1}, Part: PartMIME, HasPartial: true, Count: 2048}}}},
		{"FETCH 1 (BODY[] BODY[1] BODY[TEXT] BODY[3.HEADER.FIELDS.NOT (\"Subject\")] RFC822 RFC822.HEADER RFC822.TEXT)", Fetch{Messages: seqs("1"), Sections: []Section{
			{}, {Path: []uint32{1}}, {Part: PartText}, {Path: []uint32{3}, Part: PartHeaderFieldsNot, Fields: []string{"Subject"}},
			{Kind: SectionRFC822}, {Kind: SectionRFC822, Part: PartHeader, Peek: true}, {Kind: SectionRFC822, Part: PartText}}}},
		{"FETCH 1 (BINARY.PEEK[1.2]<5.10> BINARY.SIZE[3] BINARY[])", Fetch{Messages: seqs("1"), Sections: []Section{
			{Kind: SectionBinary, Peek: true, Path: []uint32{1, 2}, HasPartial: true, Offset: 5, Count: 10},
			{Kind: SectionBinarySize, Peek: true, Path: []uint32{3}}, {Kind: SectionBinary}}}},
		{"UID FETCH 300:500 (FLAGS) (CHANGEDSINCE 12345 VANISHED)", Fetch{Messages: uids("300:500"),
			Items: FetchUID | FetchFlags | FetchModSeq, ChangedSince: 12345, HasChangedSince: true, Vanished: true}},
		{"UID FETCH 25900:26600 (UID FLAGS) (PARTIAL -1:-100)", Fetch{Messages: uids("25900:26600"),
			Items: FetchUID | FetchFlags, Partial: Page{1, 100, true}}},
		{"FETCH 1 (PREVIEW (LAZY) FLAGS)", Fetch{Messages: seqs("1"), Items: FetchPreview | FetchPreviewLazy | FetchFlags}},
		{"FETCH 1 PREVIEW (CHANGEDSINCE 5)", Fetch{Messages: seqs("1"), Items: FetchPreview | FetchModSeq, ChangedSince: 5, HasChangedSince: true}},
	}
	for _, tt := range tests {
		got, err := parseOne(t, tt.line)
		if err != nil {
			t.Errorf("%s: %v", tt.line, err)
		} else if !reflect.DeepEqual(got, &tt.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", tt.line, got, &tt.want)
		}
	}
}

func TestRefusedCommands(t *testing.T) {
	tests := []struct {
		line   string
		status Status
		code   Code
	}{
		{"", Bad, ""},
		{"FROBNICATE", Bad, ""},
		{"UID NOOP", Bad, ""},
		{"UID", Bad, ""},
		{"NOOP ", Bad, ""},
		{"NOOP x", Bad, ""},
		{"LOGIN smith", Bad, ""},
		{"LOGIN smith ", Bad, ""},
		{"LOGIN smith pass word", Bad, ""},
		{`LOGIN "smith x`, Bad, ""},
		{`LOGIN "smi\th" x`, Bad, ""},
		{`LOGIN smith pä`, Bad, ""},
		{"LOGIN \"\xff\" x", Bad, ""},
		{"LOGIN sm\x00ith x", Bad, ""},
		{"LOGIN sm\rith x", Bad, ""},
		{"LOGIN {x} y", Bad, ""},
		{"LOGIN {5", Bad, ""},
		{"LOGIN {5+}\r\nsm\x00th x", Bad, ""},
		{"AUTHENTICATE PLAIN ?", Bad, ""},
		{"SELECT", Bad, ""},
		{"SELECT &bad", No, CodeCannot},
		{"SELECT INBOX (FROB)", Bad, ""},
		{"SELECT INBOX (QRESYNC (1 2 1:*))", Bad, ""},
		{"SELECT INBOX (QRESYNC (0 2))", Bad, ""},
		{"SELECT INBOX (QRESYNC (1 2 1:4 (1:2 7)))", Bad, ""},
		{`LIST (RECURSIVEMATCH) "" *`, Bad, ""},
		{`LIST "" ()`, Bad, ""},
		{`LIST "" * RETURN (FROB)`, Bad, ""},
		{"STATUS INBOX ()", Bad, ""},
		{"STATUS INBOX (FROB)", Bad, ""},
		{"FETCH 0 FLAGS", Bad, ""},
		{"FETCH 1:0 FLAGS", Bad, ""},
		{"FETCH 4294967296 FLAGS", Bad, ""},
		{"FETCH 1, FLAGS", Bad, ""},
		{"FETCH 1 ()", Bad, ""},
		{"FETCH 1 (ALL)", Bad, ""},
		{"FETCH 1 FROB", Bad, ""},
		{"FETCH 1 BODY[MIME]", Bad, ""},
		{"FETCH 1 BODY[1.]", Bad, ""},
		{"FETCH 1 BODY[0]", Bad, ""},
		{"FETCH 1 BODY[]<1.0>", Bad, ""},
		{"FETCH 1 BODY[HEADER.FIELDS ()]", Bad, ""},
		{"FETCH 1 (" + strings.Repeat("BODY[] ", 65) + "UID)", No, CodeLimit},
		{"FETCH 1 BODY[" + strings.Repeat("1.", 100) + "1]", No, CodeLimit},
		{"FETCH 1 FLAGS (VANISHED)", Bad, ""},
		{"FETCH 1 FLAGS (CHANGEDSINCE 9223372036854775808)", Bad, ""},
		{"FETCH " + strings.Repeat("1,", MaxRanges) + "9 UID", No, CodeLimit},
		{`STORE 1 FLAGS (\Frob)`, No, CodeCannot},
		{`STORE 1 FLAGS \Frob`, No, CodeCannot},
		{`STORE 1 FLAGS (\)`, Bad, ""},
		{`STORE 1 +FLAGS ([Work])`, No, CodeCannot},
		{`STORE 1 +FLAGS (a a]b)`, No, CodeCannot},
		{`STORE 1 -FLAGS.SILENT 50%`, No, CodeCannot},
		{`UID STORE 1 FLAGS ("in quotes" x)`, No, CodeCannot},
		{"STORE 1 FLAGS (M\xc3\xbcller)", No, CodeCannot},
		{`STORE 1 FLAGS (a{b)`, No, CodeCannot},
		{`STORE 1 FLAGS (a"b\c)`, No, CodeCannot},
		{`STORE 1 FLAGS ("in quotes)`, Bad, ""},
		{`STORE 1 FLAGS ((a))`, Bad, ""},
		{`STORE 1 FLAGS (a(b))`, Bad, ""},
		{`STORE 1 FLAGS {1}`, Bad, ""},
		{`SEARCH KEYWORD a]b`, Bad, ""},
		{"APPEND INBOX ([Work]) {3+}\r\nabc", No, CodeCannot},
		{`STORE 1 FLAGS (\*)`, Bad, ""},
		{`STORE 1 FROB (\Seen)`, Bad, ""},
		{`STORE 1 FLAGS`, Bad, ""},
		{"STORE 1 FLAGS " + strings.Repeat("k", 101), No, CodeLimit},
		{"SEARCH", Bad, ""},
		{"SEARCH FROB", Bad, ""},
		{"SEARCH CHARSET KOI8-R ALL", No, CodeBadCharset("US-ASCII", "UTF-8")},
		{"SEARCH TEXT {2+}\r\n\xff\xfe", Bad, ""},
		{"SEARCH SINCE 31-Feb-2026", Bad, ""},
		{"SEARCH SINCE 1-Foo-2026", Bad, ""},
		{"SEARCH YOUNGER 0", Bad, ""},
		{"SEARCH RETURN (ALL PARTIAL 1:2) ALL", Bad, ""},
		{"SEARCH " + strings.Repeat("NOT ", 51) + "ALL", No, CodeLimit},
		{"SEARCH " + strings.Repeat("(", 51) + "ALL" + strings.Repeat(")", 51), No, CodeLimit},
		{"SEARCH ALL" + strings.Repeat(" ALL", 1000), No, CodeLimit},
		{"SEARCH (ALL", Bad, ""},
		{"SORT () UTF-8 ALL", Bad, ""},
		{"THREAD FROB UTF-8 ALL", Bad, ""},
		{"APPEND INBOX", Bad, ""},
		{"APPEND INBOX (\\Seen) hello", Bad, ""},
		{`APPEND INBOX "31-Feb-2026 00:00:00 +0000" {5+}` + "\r\nhello", Bad, ""},
		{"APPEND INBOX {1048577}", No, CodeTooBig},
		{"LOGIN x {65537}", Bad, CodeTooBig},
		{"LOGIN x {99999999999999999999999}", Bad, CodeTooBig},
		{"LOGIN " + strings.Repeat("x", 70000) + " y", Bad, CodeTooBig},
	}
	for _, tt := range tests {
		r, _ := newTestReader("a1 " + tt.line + "\r\na2 NOOP\r\n")
		name := tt.line[:min(len(tt.line), 60)]
		tag, cmd, err := r.ReadCommand()
		var refused *Error
		if !errors.As(err, &refused) || tag != "a1" || cmd != nil {
			t.Errorf("%q: tag %q, command %v, error %v", name, tag, cmd, err)
			continue
		}
		if refused.Status != tt.status || refused.Code != tt.code || refused.Text == "" {
			t.Errorf("%q: refused with %v", name, refused)
		}
		if tag, cmd, err := r.ReadCommand(); tag != "a2" || err != nil {
			t.Errorf("%q: next command is %q %v, %v", name, tag, cmd, err)
		}
		if _, _, err := r.ReadCommand(); err != io.EOF {
			t.Errorf("%q: at the end: %v", name, err)
		}
	}
}
