// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"
)

// serve plays a server with one message that knows a few commands, and
// returns what the client has appended.
func serve(conn net.Conn) (appended string, err error) {
	var buffers BufferPool
	w := NewWriter(conn, &buffers)
	r := NewReader(bufio.NewReader(conn), w.Continue)
	r.Limits = LimitsAfterLogin(1 << 20)
	capabilities := []string{"IMAP4rev1", "ESEARCH", "UIDPLUS", "MOVE", "LIST-EXTENDED", "LIST-STATUS"}
	w.Untagged(OK, CodeCapability(capabilities...), "Ready.")
	for {
		if err := w.Flush(); err != nil {
			return appended, err
		}
		tag, cmd, err := r.ReadCommand()
		if err != nil {
			return appended, err
		}
		code := Code("")
		switch cmd := cmd.(type) {
		case *Logout:
			w.Untagged(Bye, "", "Bye.")
			w.Tagged(tag, OK, "", "Done.")
			return appended, w.Flush()
		case *Capability:
			w.Capability(capabilities...)
		case *Select:
			w.FolderFlags(Flags{System: AllFlags})
			w.Exists(1)
			w.Untagged(OK, CodePermanentFlags(Flags{System: AllFlags}, true), "Flags.")
			w.Untagged(OK, CodeUIDNext(8), "Next.")
			w.Untagged(OK, CodeUIDValidity(99), "Valid.")
			code = CodeReadWrite
		case *List:
			w.List(&ListData{Attributes: []string{`\HasNoChildren`}, Separator: '/', Mailbox: "Entwürfe & mehr"})
			w.Status(&StatusData{Mailbox: "Entwürfe & mehr", Items: cmd.Status, Messages: 3, UIDNext: 8})
		case *Search:
			w.ESearch(tag, cmd.UID, cmd.SearchOptions, SetOf(1, 2, 3, 7), 0)
		case *Fetch:
			row := w.Fetch(1)
			row.UID(7)
			row.Flags(Flags{Seen, []string{"$Work"}})
			row.InternalDate(time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC))
			row.Size(11)
			row.Raw("ENVELOPE", []byte(`(NIL "Hi" NIL NIL NIL NIL NIL NIL NIL "<1@x.test>")`))
			row.Section(&cmd.Sections[0], 5, strings.NewReader("hello world"))
			row.End()
		case *Append:
			body, err := r.Message()
			if err != nil {
				return appended, err
			}
			b, err := io.ReadAll(body)
			if err != nil {
				return appended, err
			}
			if m, err := r.NextMessage(); m != nil || err != nil {
				return appended, err
			}
			appended = cmd.Mailbox + ": " + string(b)
			code = CodeAppendUID(99, SetOf(8))
		case *Move:
			w.Untagged(OK, CodeCopyUID(1, SetOf(7), SetOf(70)), "Moved.")
			w.Expunge(1)
		}
		w.Tagged(tag, OK, code, "Done.")
	}
}

// TestAgainstClient lets a client that others have written judge both ways.
func TestAgainstClient(t *testing.T) {
	here, there := net.Pipe()
	type result struct {
		appended string
		err      error
	}
	done := make(chan result, 1)
	go func() {
		appended, err := serve(there)
		done <- result{appended, errors.Join(err, there.Close())}
	}()
	c := imapclient.New(here, nil)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(c.Login("a@x.test", `p"w\ ü`).Wait())
	sel, err := c.Select("INBOX", nil).Wait()
	must(err)
	if sel.NumMessages != 1 || sel.UIDNext != 8 || sel.UIDValidity != 99 {
		t.Errorf("SELECT: %+v", sel)
	}
	list, err := c.List("", "%", &imap.ListOptions{ReturnStatus: &imap.StatusOptions{NumMessages: true, UIDNext: true}}).Collect()
	must(err)
	if len(list) != 1 || list[0].Mailbox != "Entwürfe & mehr" || list[0].Status == nil || *list[0].Status.NumMessages != 3 {
		t.Errorf("LIST: %+v", list)
	}
	found, err := c.UIDSearch(&imap.SearchCriteria{NotFlag: []imap.Flag{imap.FlagSeen}, Text: []string{"é"}},
		&imap.SearchOptions{ReturnAll: true, ReturnCount: true}).Wait()
	must(err)
	if found.Count != 4 || found.All.String() != "1:3,7" {
		t.Errorf("SEARCH: %+v", found)
	}
	section := &imap.FetchItemBodySection{Specifier: imap.PartSpecifierText, Peek: true, Partial: &imap.SectionPartial{Size: 5}}
	rows, err := c.Fetch(imap.UIDSetNum(7), &imap.FetchOptions{UID: true, Flags: true, Envelope: true, BodySection: []*imap.FetchItemBodySection{section}}).Collect()
	must(err)
	if len(rows) != 1 || rows[0].UID != 7 || rows[0].Envelope.Subject != "Hi" || len(rows[0].Flags) != 2 ||
		string(rows[0].FindBodySection(section)) != "hello" || rows[0].InternalDate.Second() != 6 {
		t.Errorf("FETCH: %+v", rows)
	}
	text := strings.Repeat("line\r\n", 2000)
	a := c.Append("Sent/é", int64(len(text)), &imap.AppendOptions{Flags: []imap.Flag{imap.FlagSeen}, Time: time.Unix(1e9, 0)})
	_, err = io.WriteString(a, text)
	must(errors.Join(err, a.Close()))
	ack, err := a.Wait()
	must(err)
	if ack.UID != 8 || ack.UIDValidity != 99 {
		t.Errorf("APPEND: %+v", ack)
	}
	moved, err := c.Move(imap.UIDSetNum(7), "x").Wait()
	must(err)
	if moved.UIDValidity != 1 || moved.SourceUIDs.String() != "7" || moved.DestUIDs.String() != "70" {
		t.Errorf("MOVE: %+v", moved)
	}
	must(c.Logout().Wait())
	got := <-done
	if got.err != nil || got.appended != "Sent/é: "+text {
		t.Errorf("the server ends with %v, %d bytes appended", got.err, len(got.appended))
	}
	_ = c.Close()
}
